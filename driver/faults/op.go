package faults

// Op is a kind of request to a store. It is shared by all packages that inject
// or count faults.
type Op int

// OpConnect to OpClose, and OpRemove to OpValue, are the methods of package
// driver that may send a request to the store. OpCleanUp removes the node of a
// Create whose outcome is unknown. OpHeartbeat renews a lease; the plan of a
// [Connector] is never asked about it.
const (
	OpConnect Op = iota
	OpCreate
	OpList
	OpWatch
	OpWatchQueue
	OpDelete
	OpReplace
	OpRead
	OpWalk
	OpClose
	OpCleanUp
	OpHeartbeat
	OpRemove // here, because Rates depends on the numbers above
	OpSetValue
	OpValue
)

var opNames = [...]string{
	OpConnect:    "connect",
	OpCreate:     "create",
	OpList:       "list",
	OpWatch:      "watch",
	OpWatchQueue: "watch-queue",
	OpDelete:     "delete",
	OpReplace:    "replace",
	OpRead:       "read",
	OpWalk:       "walk",
	OpClose:      "close",
	OpCleanUp:    "clean-up",
	OpHeartbeat:  "heartbeat",
	OpRemove:     "remove",
	OpSetValue:   "set-value",
	OpValue:      "value",
}

// String returns the name of the request, such as "create".
func (op Op) String() string {
	if op < 0 || int(op) >= len(opNames) {
		return "unknown"
	}
	return opNames[op]
}
