/*
 * Engines pass each entry to libseccomp as a rule that allows or refuses. Entries of one call are
 * alternatives; all comparisons in one entry must hold. An entry can compare an argument only once,
 * so "none of these values" becomes a list of bit prefixes that all other values begin with. All
 * comparisons are masked to the low word: see struct call_rule.
 */
#include "daemon/engine/docker/profile.h"

#include <errno.h>

#include "lib/base/json.h"

#define WORD 0xffffffffU

static json_t *profile_compare(unsigned arg, uint32_t mask, uint32_t value)
{
    return json_pack("{s:i, s:I, s:I, s:s}", "index", (int)arg, "value", (json_int_t)mask,
                     "valueTwo", (json_int_t)value, "op", "SCMP_CMP_MASKED_EQ");
}

/* Adds an entry; errnum 0 allows. Takes `names`, and `args` (comparisons, or NULL). */
static void profile_add(json_t *to, int errnum, json_t *names, json_t *args)
{
    json_t *entry = json_pack("{s:o, s:s}", "names", names, "action",
                              errnum ? "SCMP_ACT_ERRNO" : "SCMP_ACT_ALLOW");

    if (errnum)
        json_object_set_new(entry, "errnoRet", json_integer(errnum));
    if (args)
        json_object_set_new(entry, "args", args);
    json_array_append_new(to, entry);
}

static json_t *profile_name_of(const struct seccomp_call *c)
{
    return json_pack("[s]", c->name);
}

/* ---- calls with conditions ---- */

/* Allows all values with this bit prefix, down to `bit`, except the values of the rule. */
static void profile_add_others(json_t *to, const struct seccomp_call *c, uint32_t prefix, int bit)
{
    const struct seccomp_rule *r = c->rule;
    uint32_t mask = WORD << bit;

    for (size_t i = 0; i < r->n; i++)
        if ((r->values[i] & mask) == prefix) {
            if (bit == 0)
                return;
            profile_add_others(to, c, prefix, bit - 1);
            profile_add_others(to, c, prefix | 1U << (bit - 1), bit - 1);
            return;
        }
    profile_add(to, 0, profile_name_of(c), json_pack("[o]", profile_compare(r->arg, mask, prefix)));
}

static void profile_add_none_of(json_t *to, const struct seccomp_call *c)
{
    profile_add_others(to, c, 0, 31);
    profile_add_others(to, c, 1U << 31, 31);
    for (size_t i = 0; i < c->rule->n; i++)
        profile_add(to, c->rule->errnum, profile_name_of(c),
                    json_pack("[o]", profile_compare(c->rule->arg, WORD, c->rule->values[i])));
}

/* Refuses one bit of the argument, with a condition for each bit of the other argument. */
static void profile_refuse_bit(json_t *to, const struct seccomp_call *c, uint32_t bit)
{
    const struct seccomp_rule *r = c->rule;

    if (!r->if_bits)
        profile_add(to, r->errnum, profile_name_of(c),
                    json_pack("[o]", profile_compare(r->arg, bit, bit)));
    for (uint32_t on = 1; on; on <<= 1)
        if (r->if_bits & on)
            profile_add(to, r->errnum, profile_name_of(c),
                        json_pack("[oo]", profile_compare(r->if_arg, on, on),
                                  profile_compare(r->arg, bit, bit)));
}

static void profile_add_no_bits(json_t *to, const struct seccomp_call *c)
{
    const struct seccomp_rule *r = c->rule;
    uint32_t bits = r->values[0];

    profile_add(to, 0, profile_name_of(c), json_pack("[o]", profile_compare(r->arg, bits, 0)));
    if (r->if_bits)
        profile_add(to, 0, profile_name_of(c),
                    json_pack("[o]", profile_compare(r->if_arg, r->if_bits, 0)));
    for (uint32_t bit = 1; bit; bit <<= 1)
        if (bits & bit)
            profile_refuse_bit(to, c, bit);
}

static void profile_add_one_of(json_t *to, const struct seccomp_call *c)
{
    for (size_t i = 0; i < c->rule->n; i++)
        profile_add(to, 0, profile_name_of(c),
                    json_pack("[o]", profile_compare(c->rule->arg, WORD, c->rule->values[i])));
}

static void profile_add_by_rule(json_t *to, const struct seccomp_call *c)
{
    switch (c->rule->test) {
    case CALL_NO_BITS:
        profile_add_no_bits(to, c);
        break;
    case CALL_NONE_OF:
        profile_add_none_of(to, c);
        break;
    case CALL_ONE_OF:
        profile_add_one_of(to, c);
        break;
    }
}

static void profile_add_sockets(json_t *to, const struct seccomp_call *c)
{
    const struct seccomp_socket *s;

    for (size_t i = 0; (s = seccomp_socket_at(i)); i++) {
        if (s->n == 0)
            profile_add(to, 0, profile_name_of(c),
                        json_pack("[o]", profile_compare(0, WORD, s->family)));
        for (size_t j = 0; j < s->n; j++)
            profile_add(to, 0, profile_name_of(c),
                        json_pack("[oo]", profile_compare(0, WORD, s->family),
                                  profile_compare(2, WORD, s->protocols[j])));
    }
}

/* ---- all ---- */

static json_t *profile_names_with(enum seccomp_variant variant, enum seccomp_verdict verdict,
                                  int errnum)
{
    json_t *names = json_array();
    const struct seccomp_call *c;

    for (size_t i = 0; (c = seccomp_call_at(variant, i)); i++)
        if (c->verdict == verdict && c->errnum == errnum)
            json_array_append_new(names, json_string(c->name));
    return names;
}

char *profile_text(enum seccomp_variant variant)
{
    _cleanup_json_ json_t *doc = NULL;
    json_t *entries = json_array();
    const struct seccomp_call *c;

    profile_add(entries, 0, profile_names_with(variant, CALL_ALLOW, 0), NULL);
    profile_add(entries, EPERM, profile_names_with(variant, CALL_REFUSE, EPERM), NULL);
    /* Listed for engines that ignore defaultErrnoRet: libc needs ENOSYS to fall back. */
    profile_add(entries, ENOSYS, profile_names_with(variant, CALL_REFUSE, ENOSYS), NULL);
    for (size_t i = 0; (c = seccomp_call_at(variant, i)); i++) {
        if (c->verdict == CALL_ARGS)
            profile_add_by_rule(entries, c);
        else if (c->verdict == CALL_SOCKET)
            profile_add_sockets(entries, c);
    }
    doc = json_pack("{s:s, s:i, s:o}", "defaultAction", "SCMP_ACT_ERRNO", "defaultErrnoRet", ENOSYS,
                    "syscalls", entries);
    return json_to_text(doc, true);
}
