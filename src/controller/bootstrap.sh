
umask 022
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
agent=/usr/local/bin/lamp-agent

say() {
    echo "lamplighter: $*" >&2
    { echo "lamplighter: $*" >/dev/console; } 2>/dev/null || :
}

# A machine that can do nothing must not bill.
off() {
    say "$*; powering off"
    sync
    systemctl --ignore-inhibitors poweroff 2>/dev/null || poweroff 2>/dev/null || shutdown -h now 2>/dev/null || poweroff -f
    exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# FILE MODE TEXT: all of it or nothing.
put() {
    mkdir -p "${1%/*}" && printf '%s\n' "$3" >"$1.new" && chmod "$2" "$1.new" && mv -f "$1.new" "$1" || off "$1 cannot be written"
}

fetch() {
    if has curl; then
        curl -fsS --connect-timeout 10 --max-time 120 -o "$2" "$1"
    elif has wget; then
        wget -q -T 30 -O "$2" "$1"
    else
        python3 -c 'import sys, urllib.request as u; open(sys.argv[2], "wb").write(u.urlopen(sys.argv[1], timeout=30).read())' "$1" "$2"
    fi
}

sum() {
    if has sha256sum; then
        sha256sum <"$1" | cut -d' ' -f1
    else
        python3 -c 'import sys, hashlib; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$1"
    fi
}

is_agent() { [ -f "$1" ] && [ "$(sum "$1")" = "$agent_sha256" ]; }

# The switch, before anything can go wrong.
has systemctl && [ -d /run/systemd/system ] || off "this image does not run systemd"
deadline=/etc/lamplighter/deadline
[ -s "$deadline" ] || put "$deadline" 644 "$(($(date +%s) + boot_secs))"
# What a later boot gets when the deadline of an earlier life has passed (lamp-boot.service).
put /etc/lamplighter/boot-secs 644 "$boot_secs"
boots=/var/lib/lamplighter/agent/boots
[ -d "${boots%/*}" ] || (umask 077 && mkdir -p "${boots%/*}" /var/cache/lamplighter /var/log/lamplighter && echo 1 >"$boots")
put /etc/systemd/system/lamp-deadman.service 644 "$unit_deadman_service"
put /etc/systemd/system/lamp-deadman.timer 644 "$unit_deadman_timer"
put /etc/systemd/system/lamp-boot.service 644 "$unit_boot"
systemctl daemon-reload
systemctl enable lamp-boot.service
systemctl enable --now lamp-deadman.timer || off "the dead-man's switch cannot be armed"
# A kernel that panics starts again, and is counted.
put /etc/sysctl.d/60-lamplighter.conf 644 "kernel.panic = 10"
sysctl -q -w kernel.panic=10 2>/dev/null || :

# What is older knows neither the workload's unit nor the agent's list of system calls, and nothing would run.
set -- $(systemctl --version 2>/dev/null)
case "${2:-}" in
    "" | *[!0-9]*) : ;;
    *) [ "$2" -ge 243 ] || off "this image has systemd $2, and the agent needs 243: Amazon Linux 2023, Ubuntu 20.04, Debian 11 or newer" ;;
esac

put /etc/lamplighter/agent.env 600 "$agent_env"

has curl || has wget || has python3 || off "this image has none of curl, wget and python3: the agent cannot be fetched"
has sha256sum || has python3 || off "this image has neither sha256sum nor python3: the agent cannot be checked"
if ! is_agent "$agent"; then
    mkdir -p "${agent%/*}"
    new=$agent.new
    for pause in 1 2 4 8 15 30 30 0; do
        rm -f "$new"
        if ! fetch "$agent_url" "$new"; then
            say "the agent could not be fetched"
        elif is_agent "$new"; then
            break
        else
            say "what was fetched is not the agent: its SHA-256 is $(sum "$new")"
        fi
        sleep "$pause"
    done
    is_agent "$new" || { rm -f "$new"; off "no agent was had"; }
    chmod 755 "$new" && mv -f "$new" "$agent" || off "$agent cannot be written"
fi
"$agent" --version >/dev/null 2>&1 || off "the agent does not run on this image: $("$agent" --version 2>&1 | tail -n 1)"

put /etc/systemd/system/lamp-agent.service 644 "$unit_agent"
systemctl daemon-reload
systemctl enable lamp-agent.service || off "the agent cannot be enabled"
# Not waited for: it is ready when the metadata service and the store answer.
systemctl restart --no-block lamp-agent.service || off "the agent cannot be started"
say "the agent is started"
