package cas

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// memory is a KV in memory, as one session sees it.
type memory struct {
	*shared
	delay time.Duration // of each request, on average
	// lose, if not nil, reports whether a write is lost on its way.
	lose func(e Entry, others []Entry) bool
	// stale, if not nil, may replace the result of a Get.
	stale func(key string) *Entry
}

// shared is the content of the store.
type shared struct {
	mu       sync.Mutex
	revision int64
	entries  map[string]Entry
	watches  map[*int]func(Entry)

	gets, scans, writes, conflicts int
}

func newMemory() *memory {
	return &memory{shared: &shared{entries: make(map[string]Entry), watches: make(map[*int]func(Entry))}}
}

func (m *memory) travel() {
	if m.delay > 0 {
		time.Sleep(m.delay/4 + rand.N(m.delay/2))
	}
}

func (m *memory) Get(_ context.Context, key string) (Entry, error) {
	if m.stale != nil {
		if e := m.stale(key); e != nil {
			return *e, nil
		}
	}
	m.travel()
	defer m.travel()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gets++
	e := m.entries[key]
	e.Key = key
	return e, nil
}

func (m *memory) Scan(context.Context) (all []Entry, err error) {
	m.travel()
	defer m.travel()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scans++
	return slices.Collect(maps.Values(m.entries)), nil
}

func (m *memory) Write(_ context.Context, e Entry, others ...Entry) (int64, error) {
	m.travel()
	defer m.travel()
	if m.lose != nil && m.lose(e, others) {
		return 0, driver.ErrUnavailable
	}
	return m.write(e, others...)
}

func (m *shared) write(e Entry, others ...Entry) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	for _, o := range append(slices.Clone(others), e) {
		if m.entries[o.Key].Revision != o.Revision {
			m.conflicts++
			return 0, ErrConflict
		}
	}
	m.revision++
	e.Revision = m.revision
	for _, changed := range m.watches {
		if strings.HasPrefix(e.Key, "q/") {
			go changed(e) // often before the answer
		}
	}
	if e.Value == nil {
		delete(m.entries, e.Key)
		return 0, nil
	}
	m.entries[e.Key] = e
	return m.revision, nil
}

func (m *memory) Close() error { return nil }

type noticing struct{ *memory }

func (m noticing) Watch(ctx context.Context, _ string, begun func(), changed func(Entry)) error {
	id := new(int)
	m.mu.Lock()
	m.watches[id] = changed
	m.mu.Unlock()
	begun()
	<-ctx.Done()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.watches, id)
	return nil
}

// NewMemory and WithNotices are for the conformance kit.
func NewMemory() KV       { return newMemory() }
func WithNotices(m KV) KV { return noticing{m.(*memory)} }
