
agent=/usr/local/bin/lamp-agent

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

# What is older knows neither the workload's unit nor the agent's list of system calls, and nothing would run.
set -- $(systemctl --version 2>/dev/null)
case "${2:-}" in
    "" | *[!0-9]*) : ;;
    *) [ "$2" -ge 243 ] || off "this image has systemd $2, and the agent needs 243: Amazon Linux 2023, Ubuntu 20.04, Debian 11 or newer" ;;
esac

put /etc/lamplighter/agent.env 600 "$agent_env"

# On Debian and Ubuntu a `setup` meets the machine's own updates, which begin minutes after a boot: apt waits for their lock
# and no more of them begin. What runs already is left alone: a package that is half installed helps no job.
if has apt-get; then
    put /etc/apt/apt.conf.d/60lamplighter 644 'DPkg::Lock::Timeout "600";'
    systemctl mask apt-daily.timer apt-daily-upgrade.timer apt-daily.service apt-daily-upgrade.service unattended-upgrades.service
    systemctl stop apt-daily.timer apt-daily-upgrade.timer
    # After an installation needrestart restarts what uses an old library: the job is not among it.
    put /etc/needrestart/conf.d/60-lamplighter.conf 644 '$nrconf{override_rc}{qr(^lamp-)} = 0;'
fi

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
version=$("$agent" --version 2>&1) || off "the agent does not run on this image: $(printf '%s\n' "$version" | tail -n 1)"
case "$version" in
    "lamp-agent "*) ;;
    *) off "what was fetched is not lamp-agent: it calls itself $(printf '%s\n' "$version" | head -n 1)" ;;
esac

put /etc/systemd/system/lamp-agent.service 644 "$unit_agent"
put /etc/systemd/system/lamp-agent-tmp.service 644 "$unit_agent_tmp"
systemctl daemon-reload
systemctl enable lamp-agent.service || off "the agent cannot be enabled"
# Not waited for: it is ready when the metadata service and the store answer.
systemctl restart --no-block lamp-agent.service || off "the agent cannot be started"
say "the agent is started"
