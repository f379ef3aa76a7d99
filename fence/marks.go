package fence

import (
	"slices"
	"sync"
)

// Marks keeps the greatest token of each resource in memory, so it forgets the
// tokens when the process ends. Services with several replicas or with
// persistent data use a [Table] instead.
//
// The zero value is ready. Marks never forgets a resource, so pass only names
// of existing resources. It is safe for concurrent use, and must not be copied.
type Marks struct {
	// MaxBody is the greatest size of a request's body that Handler accepts,
	// in bytes. Zero means 1 MiB.
	MaxBody int64

	resources sync.Map // from name to *mark
}

type mark struct {
	mu    sync.RWMutex
	token int64 // guarded by mu
}

// Do records the token of a writer, calls f and returns its error. If a greater
// token is recorded, Do does not call f, and the error matches [ErrStale].
//
// Other calls for the resource wait until f has returned, so f must not call Do
// or Check for it. The token stays recorded even if f fails or panics.
func (m *Marks) Do(resource string, token int64, f func() error) error {
	k, err := m.of(resource, token)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if token < k.token {
		return staleError(resource, token, k.token)
	}
	k.token = token
	return f()
}

// DoAll is like Do, but for a lock that is held in a majority of several
// stores: see [Table.RaiseAll]. The tokens are recorded under the names that
// [Part] returns. A call with an invalid token or resource records none.
func (m *Marks) DoAll(resource string, tokens []int64, f func() error) error {
	if err := checkMajority(resource, tokens); err != nil {
		return err
	}
	for i, token := range slices.Backward(tokens) {
		if next := f; token != 0 {
			f = func() error { return m.Do(Part(resource, i), token, next) }
		}
	}
	return f()
}

// Check is like Do for readers: it records no token, and several calls may run
// f at the same time.
func (m *Marks) Check(resource string, token int64, f func() error) error {
	k, err := m.of(resource, token)
	if err != nil {
		return err
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	if token < k.token {
		return staleError(resource, token, k.token)
	}
	return f()
}

func (m *Marks) of(resource string, token int64) (*mark, error) {
	if err := check(resource, token); err != nil {
		return nil, err
	}
	k, found := m.resources.Load(resource)
	if !found {
		k, _ = m.resources.LoadOrStore(resource, new(mark))
	}
	return k.(*mark), nil
}
