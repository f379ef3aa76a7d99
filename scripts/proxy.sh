#!/bin/sh
# Usage: scripts/proxy.sh DIR
#
# Makes DIR a proxy for the Go command (GOPROXY=file://DIR) that serves the modules
# of this checkout, as if they were released in the version that contrib/cmd requires.
# Files that git ignores are left out, as in a release.
set -eu
dir=$1
case $dir in /*) ;; *) dir=$(pwd)/$dir ;; esac
cd "$(dirname "$0")/.."

own=github.com/dlock-go/dlock
version=$(sed -n "s|^	$own \(v.*\)|\1|p" contrib/cmd/go.mod)
modules=$(sh scripts/modules.sh | sed 's|^\./||')

# The tree of this checkout, with changes that are not committed. The index of the
# checkout stays as it is.
mkdir -p "$dir"
index=$(mktemp "$dir/index.XXXXXX")
cp "$(git rev-parse --git-path index)" "$index"
tree=$(GIT_INDEX_FILE=$index sh -c 'git add -A && git write-tree')
rm -f "$index"

for module in $modules; do
	if [ "$module" = . ]; then path=$own subtree=$tree: ; else path=$own/$module subtree=$tree:$module/; fi
	# A module does not hold the modules below its directory.
	set -- .
	for other in $(git ls-tree -r --name-only "${subtree%/}" | sed -n 's|/go\.mod$||p'); do
		set -- "$@" ":(exclude)$other"
	done
	to=$dir/$path/@v
	mkdir -p "$to"
	echo "$version" >"$to/list"
	echo "{\"Version\":\"$version\",\"Time\":\"2020-01-01T00:00:00Z\"}" >"$to/$version.info"
	git show "${subtree}go.mod" >"$to/$version.mod"
	git archive --format=zip --prefix="$path@$version/" -o "$to/$version.zip" "${subtree%/}" -- "$@"
done
