package memdriver

import "github.com/dlock-go/dlock/driver"

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

// request is what a session sends to the store. The op says which fields count.
type request struct {
	op     Op
	queue  string
	name   string       // OpWatch, OpRead: the node; OpWalk: where to look
	prefix string       // OpCreate, OpReplace
	data   []byte       // OpCreate
	call   int64        // OpCreate, OpCleanUp: number of the Create within its session
	place  driver.Place // OpDelete, OpRelease, OpReplace
	watch  *watch       // OpWatch
}

// reply is what the store answers.
type reply struct {
	err    error
	place  driver.Place
	nodes  []driver.Node
	info   driver.Info
	queues []string
	// missing says that a place was not watched, because it is not there.
	missing bool
}
