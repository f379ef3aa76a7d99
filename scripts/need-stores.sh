#!/bin/sh
# Makes sure that the tests can run every store that a driver under contrib is for.
# Goes on after a failure, so that one run shows all that is missing.
set -u

status=0
for store in redis postgres mariadb etcd; do
	sh "$(dirname "$0")/need-$store.sh" || status=1
done
exit $status
