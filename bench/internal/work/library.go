package work

// library opens a session as the lock library's documentation recommends.
type library func(p Plan) (session, error)

type session interface {
	contender(path string) (contender, error)
	close() error
}

// contender takes and releases one lock. It is not safe for concurrent use.
type contender interface {
	lock() error
	unlock() error
}

// reader is implemented by contenders whose library has shared locks.
type reader interface {
	rlock() error
	runlock() error
}

// trier is implemented by contenders whose library can try to take a lock.
type trier interface {
	tryLock() (bool, error)
}

var libraries = map[string]library{
	"dlock":      dlockWith(""),
	"dlock-list": dlockWith("&handover=list"),
	"zk.Lock":    zkLock,
}
