#!/bin/sh
# Slurm's Prolog on every node: no job begins on a node that failed its preflight; it is drained, with what it failed.
#
# slurm.conf:  Prolog=/etc/primus-flows/prolog.sh   (it runs as SlurmdUser, root by default)
# /etc/primus-flows/prolog.conf, which only root may write, says where verdicts are; without it nothing is done:
#   VERDICTS=/shared/primus/verdicts       folder with a file for each node: "fail cpu-gemm 1732300000"; or
#   COMMAND="/opt/primus/bin/primus verdict --cluster machines"   asked with the node's name behind it
#   UNKNOWN=run                            run: a node of which nothing is known gets its job; drain: it does not
#   LIMIT_SECONDS=5                        for the answer; what comes later is unknown
#
# Exit 0: the job begins. Exit 1: it does not; Slurm puts it back into its queue. A verdict that cannot be read, a
# command that crashes, and a time-out are unknown: they never drain a node unless UNKNOWN=drain.
# The test itself always runs: else no node could ever be proven again.
set -uf
PATH=${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
export PATH
VERDICTS='' COMMAND='' UNKNOWN=run LIMIT_SECONDS=5
settings=${PRIMUS_PROLOG_CONF:-/etc/primus-flows/prolog.conf}
# shellcheck source=/dev/null
[ -r "$settings" ] && . "$settings"

node=${SLURMD_NODENAME:-}
case $node in '' | .* | *[!A-Za-z0-9._-]*) exit 0 ;; esac
{ [ -n "$VERDICTS" ] || [ -n "$COMMAND" ]; } || exit 0

within() { timeout -k 1 "$@" 2>/dev/null; }

verdict=unknown check=''
if [ -n "$VERDICTS" ]; then
    line=$(within "$LIMIT_SECONDS" head -n 1 "$VERDICTS/$node")
    # "fail", what it failed, and when: the words between the first and the last.
    verdict=${line%% *} check=${line#* } check=${check% *}
else
    # The text says so and not the exit code alone: a program that crashes ends with 1, too.
    # shellcheck disable=SC2086
    said=$(within "$LIMIT_SECONDS" $COMMAND "$node")
    case $said in
        "$node: pass "*) verdict=pass ;;
        "$node: fail "*)
            verdict=fail
            check=$(printf '%s\n' "$said" | awk 'NR > 1 && ($2 == "fail" || $2 == "fail:") { print $1; exit }')
            ;;
    esac
fi
case $verdict in
    pass) exit 0 ;;
    fail) ;;
    *)
        [ "$UNKNOWN" = drain ] || exit 0
        check=unknown
        ;;
esac

name=${SLURM_JOB_NAME:-$(within 10 squeue --noheader --jobs="${SLURM_JOB_ID:-0}" --format=%j)}
case $name in primus-preflight-*) exit 0 ;; esac

check=$(printf '%s' "${check:-preflight}" | tr -cd 'A-Za-z0-9 ._:/-' | cut -c 1-100)
reason=$(within 10 sinfo --noheader --Node --nodes="$node" --format=%E | head -n 1)
case ${reason:-none} in
    none | primus:*) within 10 scontrol update "NodeName=$node" State=DRAIN "Reason=primus: $check" ;;
esac
exit 1
