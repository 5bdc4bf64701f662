/*
 * Names of images as people write them. The code that pulls an image and the code that holds the
 * credentials must derive the same registry from a name, so both use these functions.
 */
#pragma once

/* The name without leading "docker.io/" and "docker.io/library/", repeated or not; within
 * `name`. */
const char *image_name_short(const char *name);

/* The registry of the image: the first part if it looks like a host, else "docker.io". malloc'd. */
char *image_name_registry(const char *name);
