package work

import (
	"fmt"

	"github.com/dlock-go/dlock"
)

// library opens sessions with a store the way its documentation says.
type library func(p Plan) (session, error)

// session is one connection with the store, as one process would have it.
type session interface {
	contender(path string) (contender, error)
	close() error
}

// contender is one goroutine's access to the lock. It is used by one goroutine at a time.
type contender interface {
	lock() error
	unlock() error
}

// reader is a contender whose library has shared locks.
type reader interface {
	rlock() error
	runlock() error
}

// trier is a contender whose library can try; true means that the lock was won.
type trier interface {
	tryLock() (bool, error)
}

var libraries = map[string]library{
	"dlock":           dlockWith(""),
	"dlock-list":      dlockWith("&handover=list"),
	"dlock-retention": dlockWith("", dlock.WithRetention(dlock.Retention{})),
	"zk.Lock":         zkLock,
	"etcd":            etcdMutex,
	"bare":            bareRequests,
}

func find(name string) (library, error) {
	if l := libraries[name]; l != nil {
		return l, nil
	}
	return nil, fmt.Errorf("bench: unknown library %q", name)
}
