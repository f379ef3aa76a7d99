#!/bin/sh
# Makes sure that the benchmark finds ZooKeeper, and as many of the peers as can
# be had: Curator and kazoo (see need-peers.sh) and etcd (etcd-server). Installs
# what is missing where that is possible. Without ZooKeeper there is nothing to
# measure, which is an error; a peer that is missing is left out of the run, and
# the report says so.
#
# On a machine with systemd, Debian's etcd-server also starts a service of its own,
# which the benchmark neither uses nor needs: systemctl disable --now etcd
set -eu

sh "$(dirname "$0")/need-zookeeper.sh"
sh "$(dirname "$0")/need-peers.sh" || echo "benchmark: what is missing is left out" >&2

have_etcd() { command -v etcd >/dev/null 2>&1; }

. "$(dirname "$0")/install.sh"

have_etcd || install_packages etcd-server
have_etcd || echo "benchmark: no etcd, so it is left out: install etcd-server" >&2
