package recipes

import (
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// Mode is how a lock is held or wanted.
type Mode int

const (
	// Shared is a reader's mode: any number of readers hold the lock together.
	Shared Mode = iota + 1
	// Exclusive is a writer's mode: nobody else holds the lock.
	Exclusive
)

// String returns "shared" or "exclusive".
func (m Mode) String() string {
	switch m {
	case Shared:
		return "shared"
	case Exclusive:
		return "exclusive"
	}
	return "no mode"
}

const (
	sharedKind    = "-R-"
	exclusiveKind = "-W-"
)

// prefix returns what the names of the host's nodes of this mode begin with.
func (m Mode) prefix(host string) string {
	if m == Shared {
		return host + sharedKind
	}
	return host + exclusiveKind
}

// modeOf reads the mode from the name of a contender, from the right: the host name may itself
// look like one. A kind that we do not know counts as exclusive, so that nobody is let in
// beside something we do not understand. ok is false for a name without a sequence, which is no
// contender.
func modeOf(name string) (mode Mode, ok bool) {
	prefix, _, ok := driver.ParseName(name)
	switch {
	case !ok:
		return 0, false
	case strings.HasSuffix(prefix, sharedKind):
		return Shared, true
	default:
		return Exclusive, true
	}
}
