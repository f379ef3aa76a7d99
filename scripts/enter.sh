# Sourced by scripts that run Go commands in a module.

# enter changes to the directory of a module, such as ./bench, or to ./contrib.
# The modules under contrib are built in the workspace of go.work, with the other
# modules of this checkout. Every other module is built with exactly its own
# go.mod.
enter() {
	cd "$1" || exit 1
	case $1 in
	./contrib | ./contrib/* | contrib/*) unset GOWORK ;;
	*) export GOWORK=off ;;
	esac
}
