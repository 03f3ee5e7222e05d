#!/usr/bin/env bash
# A remote worker for demora in Bash, with curl and jq: one job at a time.
#   worker.sh http://127.0.0.1:8080          (the API key, if one is needed, in DEMORA_API_KEY)
# The protocol: docs/reference/worker-protocol.md.
set -u
base="${1:-http://127.0.0.1:8080}/api/v1/workers"
types='["example.sum", "example.sleep", "example.fail"]'
stopping= running= folder=$(mktemp -d)

handle() { # the type; the payload is on standard input, the result goes to standard output
    case "$1" in
        example.sum) jq -c '.numbers | add' ;;
        example.sleep) sleep "$(jq '.ms / 1000')" && echo '"rested"' ;;
        *) echo "as asked" >&2; return 1 ;;
    esac
}

call() { # the path and the body: prints the answer, and repeats for a while if there is none; returns 4 for a 404
    local answer status pause
    for pause in 0.1 0.2 0.4 0.8 1.6 3 5 5 5 5 5 5; do
        answer=$(curl -sS -X "${3:-POST}" "$base$1" -H 'content-type: application/json' -w '\n%{http_code}' \
            ${DEMORA_API_KEY:+-H "authorization: Bearer $DEMORA_API_KEY"} ${2:+-d "$2"} 2>/dev/null) ||
            answer=$'\n000' # there is none, or it was cut short
        status=${answer##*$'\n'}
        case "$status" in
            2??) printf '%s' "${answer%$'\n'*}"; return 0 ;;
            429 | 5?? | 000 | '') sleep "$pause" ;;
            404) return 4 ;;
            *) printf '%s\n' "$answer" >&2; return 1 ;;
        esac
    done
    return 1
}

settle() { # the job, the outcome, and further fields
    call "/$worker/settle" "$(jq -c --arg outcome "$2" --argjson more "$3" \
        '{jobs: [{id, token, outcome: $outcome} + $more]}' <<<"$1")" >/dev/null
}

run() { # a job: runs its handler in the background, and renews the lease meanwhile
    local job=$1 out=$folder/out err=$folder/err heard
    handle "$(jq -r .type <<<"$job")" < <(jq -c .payload <<<"$job") >"$out" 2>"$err" &
    running=$!
    local deadline=$((SECONDS + $(jq '.timeout / 1000 | ceil' <<<"$job"))) next=0
    while kill -0 "$running" 2>/dev/null; do
        if ((SECONDS >= deadline)); then
            kill "$running"; settle "$job" failed '{"error": {"type": "TimedOut"}}'; return
        elif [[ $stopping ]]; then
            kill "$running"; settle "$job" handedBack '{}'; return
        elif ((SECONDS >= next)); then
            next=$((SECONDS + 1)) # hears of a cancel within a second or so
            heard=$(call "/$worker/renew" "$(jq -c '{jobs: [{id, token}]}' <<<"$job")")
            if [[ $(jq '.lost | length' <<<"$heard") != 0 ]]; then kill "$running"; return; fi
            if [[ $(jq '.cancelled | length' <<<"$heard") != 0 ]]; then
                kill "$running"; settle "$job" cancelled '{}'; return
            fi
        fi
        sleep 0.05
    done
    if wait "$running"; then
        settle "$job" completed "$(jq -c '{result: .}' "$out")" ||
            settle "$job" failed '{"error": {"type": "Refused", "message": "the service refused its result", "permanent": true}}'
    else
        settle "$job" failed "$(jq -Rsc --argjson job "$job" '{error: {type: "HandlerFailed", message: .,
            permanent: ($job.payload.permanent // false)}}' "$err")"
    fi
}

register() {
    worker=$(call "" "{\"name\": \"bash\", \"types\": $types, \"slots\": 1}" | jq -r .workerId)
}

trap 'stopping=yes' TERM INT
trap 'rm -rf "$folder"' EXIT
register
echo "ready $worker"
number=0
while [[ ! $stopping ]]; do
    number=$((number + 1))
    answer=$(call "/$worker/claim" "{\"limit\": 1, \"wait\": 1000, \"claimId\": \"$$-$number\"}")
    case $? in
        0) job=$(jq -c '.jobs[0] // empty' <<<"$answer"); [[ $job ]] && run "$job" ;;
        4) register ;;
        *) sleep 1 ;;
    esac
done
call "/$worker" "" DELETE
