"""Installers that no distribution package brings: fetched once from the public registries and kept in the cache folder."""
import os
import shutil
import socket
import subprocess
import sys
import threading

import host_image

# Of each tool a version, so that a run next year meets the same programs.
PIP, UV, PNPM, PNPM_NOW = "pip==26.3", "uv==0.13.7", "pnpm@10.22.0", "pnpm@12.18.0"
SCHEMATHESIS = "schemathesis==4.32.5"
WEBSOCKETS = "websockets==15.0.1"
LOCK = threading.Lock()


def answers(host):
    try:
        socket.create_connection((host, 443), timeout=3).close()
        return True
    except OSError:
        return False


def public_registries():
    """Why they cannot be used here, or None."""
    return next((f"{host} does not answer" for host in ("pypi.org", "registry.npmjs.org") if not answers(host)), None)


def run(home, *argv):
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=300,
                   env={**os.environ, "HOME": str(home), "PIP_CONFIG_FILE": "/dev/null",
                        "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"})


def fetch(folder):
    pip = ("/usr/bin/python3", "-m", "pip", "install", "-q", "--no-cache-dir")
    run(folder, *pip, "--target", folder / "pip", PIP)
    run(folder, *pip, "--target", folder / "uv", UV)
    for name, package in ("pnpm", PNPM), ("pnpm-now", PNPM_NOW):
        run(folder, "npm", "install", "--silent", "--no-audit", "--no-fund", "--cache", folder / "cache", "--prefix", folder / name, package)
    shutil.rmtree(folder / "cache")


def keep(name, fetch, *programs):
    """The folder that fetch() fills, kept from run to run; or None and why not."""
    kept = host_image.cache_folder() / name
    with LOCK:
        if kept.is_dir():
            return kept, None
        absent = [p for p in programs if not shutil.which(p)]
        reason = public_registries() or (f"{absent[0]} is not installed" if absent else None)
        if reason:
            return None, reason
        new = kept.with_name(f"{name}.new-{os.getpid()}")
        try:
            new.mkdir(mode=0o755)
            fetch(new)
            new.rename(kept)
        except (OSError, subprocess.SubprocessError) as e:
            if not kept.is_dir():  # by another run at the same time
                return None, f"the tools could not be fetched: {e}"
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return kept, None


def folder():
    """pip/, uv/bin/uv, pnpm/node_modules/pnpm/bin/pnpm.cjs and pnpm-now/node_modules/.bin/pnpm below it; or None and why not."""
    name = "-".join(["tools", PIP, UV, PNPM, PNPM_NOW]).replace("==", "-").replace("@", "-")
    return keep(name, fetch, "npm")


def contract_tools():
    """A folder of modules for this Python: schemathesis, and with it a validator of JSON schemas; or None and why not."""
    name = f"contract-{sys.version_info.major}.{sys.version_info.minor}-{SCHEMATHESIS}".replace("==", "-")
    return keep(name, lambda new: run(new, sys.executable, "-m", "pip", "install", "-q", "--no-cache-dir", "--target", new, SCHEMATHESIS))


def websockets():
    """A folder of modules for this Python: a WebSocket client that is not ours; or None and why not."""
    name = f"websockets-{sys.version_info.major}.{sys.version_info.minor}-{WEBSOCKETS}".replace("==", "-")
    return keep(name, lambda new: run(new, sys.executable, "-m", "pip", "install", "-q", "--no-cache-dir", "--target", new, WEBSOCKETS))
