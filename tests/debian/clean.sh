# shellcheck shell=bash
# Sourced: a clean Debian in a directory, made with debootstrap, where commands run as on a new machine. Needs root.

# Skips the test where no such Debian can be made.
needs_debian() {
    command -v debootstrap >/dev/null && [[ $(id -u) == 0 ]] || {
        echo "skipped: this needs root and debootstrap"
        exit 77
    }
}

# make_debian SUITE: sets `work`, a directory that is removed in the end, and `root`, a new Debian below it. If TQ_CLEAN_DEBIAN names a
# directory, the Debian is made there, kept for later runs, and copied: making it takes a minute.
make_debian() {
    local suite=$1 mirror device
    work=$(mktemp -d)
    trap 'rm -rf --one-file-system "$work"' EXIT
    root=$work/root
    local clean=${TQ_CLEAN_DEBIAN:-$root}
    # The archive that this machine's own packages come from.
    mirror=${TQ_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -n 1)}
    [[ -e $clean/etc/os-release ]] || debootstrap ${TQ_ARCHITECTURE:+--arch="$TQ_ARCHITECTURE"} --variant=minbase "$suite" "$clean" "$mirror" >/dev/null
    [[ $clean == "$root" ]] || cp -a "$clean" "$root"
    for device in 'null c 1 3' 'zero c 1 5' 'random c 1 8' 'urandom c 1 9'; do
        # shellcheck disable=SC2086 # words
        [[ -e $root/dev/${device%% *} ]] || mknod -m 666 "$root/dev/"$device
    done
    mkdir -p "$root/dev/shm"
    chmod 1777 "$root/dev/shm"
    ln -sfn pts/ptmx "$root/dev/ptmx"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
}

# inside COMMAND...: runs it in that Debian, in a mount namespace of its own, so that nothing stays mounted.
inside() {
    # shellcheck disable=SC2016 # the inner shell expands them
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive unshare -m -p -f sh -c \
        'mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/dev/shm" && mount -t devpts devpts "$1/dev/pts" -o newinstance,ptmxmode=0666 && exec chroot "$@"' \
        inside "$root" "$@"
}
