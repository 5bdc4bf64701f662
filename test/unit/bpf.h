/* The kernel's classic BPF machine for seccomp, as far as filters of ours and of libseccomp use it:
 * what a filter says of a call, without making it. */
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* SECCOMP_RET_*; a program that is not valid says 0, which is KILL_THREAD. */
static inline uint32_t bpf_run(const struct sock_filter *f, size_t n, const struct seccomp_data *d)
{
    uint32_t a = 0, word;

    for (size_t pc = 0; pc < n; pc++) {
        const struct sock_filter *i = &f[pc];
        bool yes = false;

        switch (i->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            if (i->k % sizeof(word) || i->k + sizeof(word) > sizeof(*d))
                return 0;
            memcpy(&word, (const char *)d + i->k, sizeof(word));
            a = word;
            continue;
        case BPF_ALU | BPF_AND | BPF_K:
            a &= i->k;
            continue;
        case BPF_RET | BPF_K:
            return i->k;
        case BPF_JMP | BPF_JA:
            pc += i->k;
            continue;
        case BPF_JMP | BPF_JEQ | BPF_K:
            yes = a == i->k;
            break;
        case BPF_JMP | BPF_JGT | BPF_K:
            yes = a > i->k;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            yes = a >= i->k;
            break;
        case BPF_JMP | BPF_JSET | BPF_K:
            yes = a & i->k;
            break;
        default:
            return 0;
        }
        pc += yes ? i->jt : i->jf;
    }
    return 0;
}
