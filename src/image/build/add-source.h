/*
 * Sources of an ADD that are not in the context: URLs of files, and git repositories. The rules are
 * those of BuildKit.
 */
#pragma once

#include "lib/base/err.h"

enum add_source_kind { ADD_SOURCE_PATH, ADD_SOURCE_URL, ADD_SOURCE_GIT };

enum add_source_kind add_source_kind(const char *source);

/*
 * The name of the file at an http(s) URL: the last part of its path, decoded; the caller frees it.
 * ERR_INVALID: the URL is not valid, or its last part cannot be a file name.
 */
int add_source_file_name(const char *url, char **ret, struct err *err);
