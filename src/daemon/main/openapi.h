/*
 * docs/openapi.yaml as JSON. The build puts the document into the daemon.
 */
#pragma once

/* Made at the first call, on the loop's thread. NULL: the document is damaged. */
const char *openapi_json(void);
