/* Replaces macros of jansson, whose headers cppcheck does not read. */
#define json_array_foreach(a, i, v)                                                                \
    for ((i) = 0; (i) < json_array_size(a) && ((v) = json_array_get(a, i)); (i)++)
#define json_object_foreach(o, k, v)                                                               \
    for ((k) = json_first(o); (k) && ((v) = json_value(o, k)); (k) = json_next(o, k))
