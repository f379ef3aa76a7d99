#!/bin/sh
# Usage: scripts/release.sh [-tag]
#
# Proves that each module of this commit can be used as a release: from an empty cache
# and a proxy that serves the commit, without the workspace and without replacements.
# If there is an earlier release, gorelease compares the API with it: a patch release
# may not break it. With -tag, it then tags all modules, those first that others
# require, and prints how to push.
set -eu
cd "$(dirname "$0")/.."
own=github.com/dlock-go/dlock
version=$(sed -n "s|^	$own \(v.*\)|\1|p" contrib/cmd/go.mod)

fail() {
	echo "release: $*" >&2
	exit 1
}
[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed"
modules=$(sh scripts/modules.sh | sed -n 's|^\./||; /^\.$/p; /^contrib\//p' | grep -v '^contrib/cmd$')
modules="$modules contrib/cmd" # which requires all others
for module in $modules; do
	other=$(sed -n "s|^.*\($own[^ ]* v[^ ]*\).*|\1|p" "$module/go.mod" | grep -v " $version\$" || :)
	[ -z "$other" ] || fail "$module/go.mod requires $other, and not $version"
done

tag() { # the tag of a module in a version
	[ "$1" = . ] && echo "$2" || echo "$1/$2"
}
for module in $modules; do
	! git rev-parse -q --verify "refs/tags/$(tag "$module" "$version")" >/dev/null || fail "$(tag "$module" "$version") exists"
done

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
sh scripts/proxy.sh "$temp/proxy"
last=$(git -c versionsort.suffix=- tag --list 'v*' --merged=HEAD --sort=-version:refname | head -1)
# The last release comes from its tag, and its proxy comes first, because gorelease
# refuses a version that the first proxy lists.
if [ -n "$last" ]; then
	git -c advice.detachedHead=false clone -q --shared --branch "$last" . "$temp/last"
	sh "$temp/last/scripts/proxy.sh" "$temp/lastproxy"
fi
GOPROXY="file://$temp/lastproxy,file://$temp/proxy,file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
export GOPROXY GOWORK=off GOMODCACHE="$temp/mod" GOSUMDB=off GOFLAGS="-modcacherw -mod=mod"

compare() { # the API of a module with that of the last release
	# gorelease fails if a go.sum lacks our own modules, so its summary decides.
	(cd "$1" && go run golang.org/x/exp/cmd/gorelease@v0.0.0-20250620022241-b7579e27df2b \
		-base="$last" -version="$version") >"$temp/log" 2>&1 || :
	grep -v -e '^go: downloading ' -e '^exit status ' "$temp/log" || :
	grep -q "^$version .*is a valid semantic version" "$temp/log" || fail "$1: $version does not fit the changes since $last, as said above"
	# Before v1, gorelease allows incompatible changes in every release.
	[ "${last%.*}" != "${version%.*}" ] || ! grep -q '^## incompatible changes' "$temp/log" ||
		fail "$1: a patch release after $last may have no incompatible changes, as listed above: raise the minor version, or take them back"
}
for module in $modules; do
	path=$own${module#.}
	[ "$module" = . ] || path=$own/$module
	[ -z "$last" ] || ! git rev-parse -q --verify "refs/tags/$(tag "$module" "$last")" >/dev/null || compare "$module"
	(
		rm -rf "$temp/app" && mkdir "$temp/app" && cd "$temp/app"
		go mod init example.com/app && go mod download "$path@$version" && go get "$path@$version" && go build "$path/..."
	) >"$temp/log" 2>&1 || { cat "$temp/log" && fail "$path@$version can't be used"; }
	echo "$path@$version can be used"
done

[ "${1:-}" = -tag ] || exit 0
tags=
for module in $modules; do
	git tag "$(tag "$module" "$version")"
	tags="$tags $(tag "$module" "$version")"
done
echo "now: git push --atomic origin$tags"
