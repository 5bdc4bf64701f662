/*
 * End records: one that was read, written and read again says the same.
 */
#include "fuzz.h"
#include "lib/journal/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size);
    struct buf text = BUF_INIT(64 << 10), again = BUF_INIT(64 << 10);
    struct end_record rec, second;

    if (end_record_parse(copy, size, &rec, NULL) >= 0) {
        MUST((unsigned)rec.cause < END_CAUSE_MAX && rec.exit_code >= -1 && rec.exit_code <= 255);
        MUST(memchr(rec.message, 0, sizeof(rec.message)));
        MUST(end_record_status(&rec) >= 0);
        MUST(end_record_format(&rec, &text) >= 0);
        MUST(end_record_parse(buf_data(&text), text.len, &second, NULL) >= 0);
        MUST(end_record_format(&second, &again) >= 0);
        MUST(rec.cause == second.cause && rec.exit_code == second.exit_code &&
             rec.signal == second.signal);
        MUST(rec.stdout_bytes == second.stdout_bytes && rec.drained == second.drained);
    }
    buf_done(&text);
    buf_done(&again);
    free(copy);
    return 0;
}
