# Sourced by scripts that run Go commands in a module.

# enter changes to the directory of a module, such as ./bench, or to ./contrib.
# ./contrib and contrib/cmd, whose go.mod replaces nothing, are built in the
# workspace of go.work. Every other module is built with exactly its own go.mod.
enter() {
	cd "$1" || exit 1
	case $1 in
	./contrib | ./contrib/cmd) unset GOWORK ;;
	*) export GOWORK=off ;;
	esac
}
