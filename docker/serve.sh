#!/bin/sh
# Serves an index to other machines, which needs a token: TOPHIT_TOKEN may read, TOPHIT_ADMIN_TOKEN may write too.
set -eu
if [ "${1#-}" = "$1" ] && [ ! -e "$1" ] && command -v "$1" >/dev/null; then
  exec "$@" # another command, such as: docker run IMAGE tophit index ...
fi
: "${TOPHIT_TOKEN:?set TOPHIT_TOKEN: whoever knows it may search}"
umask 077
tokens=$(mktemp)
echo "read $TOPHIT_TOKEN" >"$tokens"
[ -z "${TOPHIT_ADMIN_TOKEN:-}" ] || echo "admin $TOPHIT_ADMIN_TOKEN" >>"$tokens"
set -- "$@" --host 0.0.0.0 --port "${TOPHIT_PORT:-8000}" --token-file "$tokens"
for name in ${TOPHIT_HOSTS:-localhost}; do
  set -- "$@" --allow-host "$name"
done
exec tophit serve "$@"
