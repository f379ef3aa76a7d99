#!/bin/sh
# Makes sure that the tests can run every store that a driver under contrib is for,
# can mount the directory of a SQLite database a second time, and can run promtool.
# Goes on after a failure, so that one run shows all that is missing.
set -u

status=0
for what in redis postgres mariadb etcd nats bindfs prometheus; do
	sh "$(dirname "$0")/need-$what.sh" || status=1
done
exit $status
