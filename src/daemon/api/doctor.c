/* `ripcord doctor`: starts throw-away sandboxes and answers when their commands have ended. */
#include "daemon/core/doctor/doctor.h"

#include "daemon/api/call.h"
#include "daemon/core/sandbox/spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/macro.h"

static void doctor_answered(void *arg, const struct err *err, const json_t *report)
{
    if (err)
        call_reply_err(arg, err);
    else
        call_reply(arg, 200, json_deep_copy(report));
}

void handle_doctor(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    const char *folder = NULL;
    const struct json_field fields[] = {{"folder", JSON_FIELD_STRING, &folder}};
    int r = json_read(c->body, NULL, fields, ARRAY_SIZE(fields), &err);

    if (r == 0 && folder)
        r = spec_check_path("folder", folder, &err);
    if (r < 0 || manager_doctor(c->manager, folder, doctor_answered, c, &err) < 0)
        call_reply_err(c, &err);
}
