package memdriver

// Op is a kind of request that a session sends to the store.
type Op int

// The requests. OpCleanUp is what a session sends after a Create of which it
// does not know the outcome (rule 4), OpHeartbeat keeps its lease, and OpClose
// ends it.
const (
	OpCreate Op = iota
	OpList
	OpWatch
	OpDelete
	OpReplace
	OpRelease
	OpRead
	OpWalk
	OpCleanUp
	OpHeartbeat
	OpClose

	opCount
)

var opNames = [opCount]string{
	"create", "list", "watch", "delete", "replace", "release", "read", "walk", "clean-up", "heartbeat", "close",
}

// String returns the name of the request, such as "create".
func (op Op) String() string {
	if op < 0 || op >= opCount {
		return "unknown"
	}
	return opNames[op]
}
