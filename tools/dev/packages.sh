# shellcheck shell=bash
# Sourced by ./dev: installs only the packages that a command needs. It never asks, and does nothing if all
# packages are installed.

# name of the group -> Debian/Ubuntu packages
declare -A PACKAGES=(
    [build]="gcc libc6-dev meson ninja-build pkg-config libuv1-dev libjansson-dev libsqlite3-dev libssl-dev libyaml-dev libcurl4-openssl-dev libarchive-dev liblzma-dev libzstd-dev zlib1g-dev"
    [test]="busybox-static docker-registry mandoc nftables openssh-client skopeo python3 python3-pip procps uidmap openssl libseccomp-dev"
    [engines]="docker.io podman runc netavark iptables iproute2 e2fsprogs"
    [image]="python3 mmdebstrap debian-archive-keyring"
    [dist]="binutils debhelper debian-archive-keyring dpkg-dev make mmdebstrap patch python3 xz-utils"
    [dist-test]="busybox-static lintian mmdebstrap"
    [lint]="clang-format clang-tidy cppcheck shellcheck python3 python3-yaml"
    [fuzz]="clang libclang-rt-dev"
    [builders]="buildah containernetworking-plugins"
    [vm]="qemu-system-x86 seabios ipxe-qemu mmdebstrap debian-archive-keyring e2fsprogs openssh-client python3"
    [bench]="python3 bubblewrap runc docker.io busybox-static iproute2 iptables"
    [bench-api]="curl nginx-light perl-base socat wrk"
)
declare -A PURPOSE=(
    [build]="to compile ripcord"
    [test]="to run the tests"
    [engines]="to test on Docker and Podman"
    [image]="to build the image"
    [dist]="to make packages"
    [dist-test]="to check the Debian packages"
    [lint]="to check the sources"
    [fuzz]="to fuzz the parsers"
    [builders]="to compare build times"
    [vm]="to run virtual machines"
    [bench]="to run the benchmarks"
    [bench-api]="to compare the API with other servers"
)

package_installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# libclang-rt-dev is a meta package: any versioned package is enough.
package_present() {
    case $1 in
    libclang-rt-dev) compgen -G '/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a' >/dev/null ;;
    pkg-config) package_installed pkg-config || package_installed pkgconf ;;
    docker.io) package_installed docker.io || package_installed docker-ce ;;
    *) package_installed "$1" ;;
    esac
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "cannot install packages (not root, and sudo is missing). Ask an administrator to install: ${*: -1}"
    fi
}

# Only the programs of Docker and Podman are needed. Their daemons must not start by themselves, because they would
# change the firewall of this machine.
POLICY=/usr/sbin/policy-rc.d

services_stay_down() {
    [ ! -e "$POLICY" ] || return 1
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$POLICY" >/dev/null && as_root chmod 755 "$POLICY"
}

apt_install() {
    local ours=0 status=0
    ! services_stay_down || ours=1
    apt_get_install "$@" || status=$?
    [ "$ours" -eq 0 ] || as_root rm -f "$POLICY"
    return "$status"
}

apt_get_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >&2
}

# Fetches the package lists only if apt does not know a package or fails to install it.
install_packages() {
    if ! apt-cache show "$@" >/dev/null 2>&1 || ! apt_install "$@"; then
        as_root apt-get update -q >&2 || die "apt-get update failed: packages cannot be installed"
        apt_install "$@" || die "installing '$*' failed: see the output of apt above"
    fi
}

# need GROUP...: installs the missing packages of these groups
need() {
    local group package missing
    for group in "$@"; do
        missing=()
        if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
            say "not Debian or Ubuntu: these packages (Debian names) are needed ${PURPOSE[$group]}: ${PACKAGES[$group]}"
            continue
        fi
        for package in ${PACKAGES[$group]}; do
            package_present "$package" || missing+=("$package")
        done
        [ ${#missing[@]} -eq 0 ] && continue
        say "installing ${PURPOSE[$group]}: ${missing[*]}"
        install_packages "${missing[@]}"
    done
}
