/*
 * Parses a whole Dockerfile and evaluates its target. Every position must be inside of the text.
 */
#include "fuzz.h"
#include "image/dockerfile/config.h"

static void check_places(const struct dockerfile *df)
{
    for (size_t i = 0; i < df->n_instructions; i++) {
        const struct dockerfile_instruction *in = &df->instructions[i];

        MUST(in->lead <= in->at && in->at <= in->end && in->end <= df->len);
        for (size_t k = 0; k < in->n_words; k++)
            MUST(in->words[k].at <= in->words[k].end && in->words[k].end <= in->end);
        for (size_t k = 0; k < in->n_flags; k++)
            MUST(in->at < in->flags[k].at && in->flags[k].end <= in->end);
        for (size_t k = 0; k < in->n_heredocs; k++)
            MUST(in->heredocs[k].end <= in->end);
        for (size_t k = 0; k <= in->line.len; k++)
            MUST(line_source(&in->line, k) <= df->len);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct config_inputs inputs;
    char *copy = fuzz_copy(data, size);
    struct dockerfile *df = NULL;
    struct dockerfile_config c = {0};
    size_t at = 0;

    if (dockerfile_parse(copy, size, &df, &at, NULL) >= 0) {
        check_places(df);
        if (config_evaluate(df, &inputs, &c, &at, NULL) >= 0)
            config_done(&c);
        dockerfile_free(df);
    }
    MUST(at <= size);
    free(copy);
    return 0;
}
