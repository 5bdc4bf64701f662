/*
 * GET …/ports: the TCP ports on which processes of a sandbox listen. The helper that does file
 * operations inside the sandbox reads them from the kernel (files/ports.c).
 */
#include "daemon/api/call.h"
#include "daemon/core/sandbox/sandbox.h"

/* Without a network namespace the kernel's tables are those of the machine. */
static int port_list_check(const struct sandbox *sb, struct err *err)
{
    if (sb->spec.isolation != SPEC_ISOLATION_CONFINED)
        return 0;
    err_set(err, ERR_UNSUPPORTED,
            "sandbox '%s': its ports cannot be listed, because it shares them with the machine "
            "(isolation 'confined')",
            sb->name);
    return err_hint(err, "Commands in it find their ports in $RIPCORD_PORTS.");
}

/* A sandbox that is down has no ports, and a question does not start it. */
static bool port_list_is_down(const struct sandbox *sb)
{
    return sb->state == SANDBOX_STOPPED || sb->state == SANDBOX_FAILED;
}

void handle_port_list(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = call_sandbox(c);

    if (!sb)
        return;
    if (port_list_check(sb, &err) < 0)
        call_reply_err(c, &err);
    else if (port_list_is_down(sb))
        call_reply(c, 200, json_pack("{s:[]}", "ports"));
    else
        handle_file_op(c);
}
