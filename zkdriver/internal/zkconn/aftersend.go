package zkconn

import (
	"bytes"
	"slices"
	"sync"
)

// sendHooks holds the callbacks of Conn.AfterSend.
type sendHooks struct {
	mu    sync.Mutex
	hooks []*sendHook
}

// sendHook is a function to call once, when a transaction that contains the
// given bytes has been written to the connection.
type sendHook struct {
	contents []byte
	run      func()
}

func (hs *sendHooks) add(h *sendHook) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.hooks = append(hs.hooks, h)
}

func (hs *sendHooks) take(request []byte) *sendHook {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	i := slices.IndexFunc(hs.hooks, func(h *sendHook) bool { return bytes.Contains(request, h.contents) })
	if i < 0 {
		return nil
	}
	h := hs.hooks[i]
	hs.hooks = slices.Delete(hs.hooks, i, i+1)
	return h
}

// cancel removes a hook. It returns false if the hook has run or is about to.
func (hs *sendHooks) cancel(h *sendHook) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	i := slices.Index(hs.hooks, h)
	if i >= 0 {
		hs.hooks = slices.Delete(hs.hooks, i, i+1)
	}
	return i >= 0
}
