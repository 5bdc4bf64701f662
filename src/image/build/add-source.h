/*
 * Sources of an ADD that are not in the context, as BuildKit tells them apart: addresses of files,
 * and git repositories.
 */
#pragma once

#include "lib/base/err.h"

enum add_source_kind { ADD_SOURCE_PATH, ADD_SOURCE_URL, ADD_SOURCE_GIT };

enum add_source_kind add_source_kind(const char *source);

/*
 * What the file at an http(s) address is called in a folder: the last part of its path, decoded.
 * ERR_INVALID for one that cannot be asked for as it stands, or whose file could not have that
 * name.
 */
int add_source_file_name(const char *url, char **ret, struct err *err);
