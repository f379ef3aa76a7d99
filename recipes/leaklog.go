package recipes

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
)

// WithLeakLog makes the client log, at level Warn, each [Lock] that the program
// has dropped without calling Unlock, and where it was taken. Such a lock stays
// held until the client is closed. The log goes to the logger of [WithLogger],
// or without one to slog.Default.
//
// The option is a debugging aid. The message is logged when the garbage
// collector finds that nothing refers to the Lock or to one of its contexts any
// more, which may be late or never. The client does not unlock the lock,
// because the work under it may still be in progress. Locks of WithLock cannot
// be dropped. The option costs a few allocations for each lock.
func WithLeakLog() Option {
	return func(o *options) { o.leakLog = true }
}

// handle detects a dropped Lock. It is referenced only by the copies of the
// Lock and by its contexts, so its cleanup runs once the program has dropped
// all of them.
type handle struct{ state *lockState }

// site is a position in the source code.
type site struct {
	file string
	line int
}

func (s site) String() string { return fmt.Sprintf("%s:%d", s.file, s.line) }

// logDropped returns a copy of l that is logged if the program drops it without
// Unlock.
func (l *Lock) logDropped() *Lock {
	type dropped struct {
		*lockState
		taken site
	}
	h := &handle{l.lockState}
	runtime.AddCleanup(h, func(d dropped) { d.lockState.dropped(d.taken) }, dropped{l.lockState, callSite()})
	return &Lock{lockState: l.lockState, handle: h}
}

// dropped logs a Lock that the garbage collector has found unreachable, unless
// it was unlocked. The runtime calls it and must not be blocked.
func (l *lockState) dropped(taken site) {
	q := l.hold.queue
	l.hold.mu.Lock()
	unlocked := l.unlocked
	l.hold.mu.Unlock()
	if unlocked {
		return
	}
	q.client.spawn(func() { // no-op after Close, which ends all locks
		q.options.alarms().Warn("dlock: a lock was dropped without Unlock and stays held",
			"lock", q.name, "node", l.hold.entry.Place().Name, "taken", taken.String())
	})
}

var thisPackage = reflect.TypeFor[Lock]().PkgPath() + "."

// callSite returns the position of the first caller outside this package.
func callSite() site {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	for {
		f, more := frames.Next()
		if !more || !strings.HasPrefix(f.Function, thisPackage) {
			return site{f.File, f.Line}
		}
	}
}
