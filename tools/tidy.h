/*
 * clang-tidy includes this header before every file except err.c. The analyzer sees one file at a
 * time and does not know that err_set() and its relatives always return a negative number. Without
 * this header it follows impossible paths, from a failed call past `if (r < 0)`.
 */
#pragma once

#include "lib/base/err.h"

#define err_set(...) (err_set(__VA_ARGS__), -1)
#define err_setv(...) (err_setv(__VA_ARGS__), -1)
#define err_sys(...) (err_sys(__VA_ARGS__), -1)
#define err_wrap(...) (err_wrap(__VA_ARGS__), -1)
#define err_hint(...) (err_hint(__VA_ARGS__), -1)
#define err_move(...) (err_move(__VA_ARGS__), -1)
#define err_copy(...) (err_copy(__VA_ARGS__), -1)
