package cas

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/dlock-go/dlock/driver/session"
)

// KV is a key-value store, as one session sees it. All methods are safe for
// concurrent use. An error matches driver.ErrUnavailable if a retry may
// succeed.
//
// Keys have up to 1,540 letters, digits, '/', '-', '_' and '='. The driver puts
// a prefix before them.
//
// Reads are linearizable: they show each earlier write that was answered or
// announced. Joining and leaving a queue, and ending a session, do not rely on
// that, because the condition of the write decides.
type KV interface {
	Get(ctx context.Context, key string) (Entry, error)
	// Scan returns all entries, which need not be from one instant.
	Scan(ctx context.Context) ([]Entry, error)
	// Write stores the Value of e, or removes the key if the Value is nil. In the
	// same step, it checks that the key still has e.Revision, and that the guard's
	// key, if there is a guard, has the guard's Revision. It returns the new
	// revision, which may be zero after a removal. A store that cannot check a
	// second key is [Unguarded].
	//
	// If a revision differs, the error matches [ErrConflict]. It must also match
	// driver.ErrUnavailable if the write may have been made all the same, because
	// the client library may send it twice, or a deposed leader may answer. After
	// any other error, the outcome is unknown, and the request may still arrive.
	Write(ctx context.Context, e Entry, guard ...Entry) (revision int64, err error)
	// Close frees the connections. It is called after the Write that ends the
	// session. If that Write has failed, the session may repeat it after Close, so
	// a Write after Close must connect again.
	Close() error
}

// Entry is a key with its value.
type Entry struct {
	Key   string
	Value []byte // not empty; nil if there is no key
	// Revision is positive and less than 10^18 if the key exists. Otherwise it is
	// zero or, after a removal, may be the revision of the removal. Each write of
	// a key must have a greater revision than all earlier writes of that key, also
	// those before a removal, because revisions become fencing tokens.
	//
	// A counter that all keys share will do, such as etcd's revision. A store with
	// a counter for each key has to store max(last+1, microseconds of a clock) as
	// the revision.
	Revision int64
	// Note is a short text about the nodes that a write of a queue removes. A
	// notice with the Note needs no Value. Get and Scan may leave the Note out.
	Note string
}

// Watcher is a [KV] that sends notices of changes, so that waiters rarely poll.
type Watcher interface {
	KV
	// Watch calls changed after each write or removal of a key with the prefix,
	// until ctx ends or notices cease. The entry must have the new revision. Its
	// Value and Note save reads, but may be missing or wrong. Watch calls begun
	// before the first notice, and again when notices may have been lost. An
	// unnoticed loss delays a waiter by up to a quarter of the session timeout.
	Watch(ctx context.Context, prefix string, begun func(), changed func(Entry)) error
}

// Generational is a [KV] that may lose data, but then reports a new generation.
type Generational interface {
	KV
	// Generation returns the generation of the data. A new one begins with each
	// event that may have undone an answered write. Generation is called before
	// the session begins and after each heartbeat. If it has changed, the session
	// ends with driver.ErrLostData. The result's field Wait must outlast the
	// leases of all earlier generations.
	Generation(ctx context.Context) (Generation, error)
}

// Generation is the result of [Generational.Generation].
type Generation struct {
	session.Begun
	// Base is added to revisions to make tokens. With it, tokens are greater
	// than those of earlier generations even if revisions are not.
	Base int64
}

// Unguarded is a [KV] that may be unable to check the revision of a second key.
type Unguarded interface {
	KV
	// Unguarded reports whether Write takes no guard. If so, a session checks that
	// its key exists after it has added a node, and otherwise removes the node.
	Unguarded() bool
}

// ErrConflict is matched by the error of a write whose condition does not hold.
var ErrConflict = errors.New("a key has another revision")

var (
	toKey   = strings.NewReplacer("%2F", "/", "%", "=", "+", "=20", ".", "=2E", "~", "=7E")
	fromKey = strings.NewReplacer("=", "%")
)

func queueKey(queue string) string { return "q/" + toKey.Replace(url.QueryEscape(queue)) }
func sessionKey(id string) string  { return "s/" + id }

// queueOf is the inverse of queueKey.
func queueOf(key string) (queue string, ok bool) {
	name, ok := strings.CutPrefix(key, "q/")
	queue, err := url.QueryUnescape(fromKey.Replace(name))
	return queue, ok && err == nil
}
