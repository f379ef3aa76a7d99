package session

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// orphans holds the data of nodes that a Create without an answer may have made, or
// may still make.
type orphans struct {
	mu      sync.Mutex
	data    [][]byte
	running bool // a goroutine removes them
}

// orphan removes the node with that data, if there is one, as soon as the database
// can be reached. It raises the generation, so that the database refuses the Create
// if it arrives later.
func (s *Session) orphan(data []byte) {
	o := &s.orphans
	o.mu.Lock()
	defer o.mu.Unlock()
	s.generation.Add(1)
	o.data = append(o.data, bytes.Clone(data))
	if !o.running {
		o.running = s.calls.Go(s.removeOrphans)
	}
}

// cancelPause is the time between two attempts to remove orphans.
const cancelPause = 50 * time.Millisecond

func (s *Session) removeOrphans() {
	life, cancel := s.lease.Context()
	defer cancel()
	for {
		batch, op, more := s.nextOrphans()
		if !more {
			return
		}
		ctx, cancel := context.WithTimeout(life, max(s.timeout/4, time.Second))
		err := s.store.Cancel(ctx, op, batch)
		cancel()
		switch {
		case err == nil:
			s.orphansRemoved(len(batch))
		case errors.Is(err, ErrUnknownSession):
			s.lease.End(err)
			return
		case !sleep(life, cancelPause):
			return
		}
	}
}

// nextOrphans returns the orphans of now, and the generation that their Creates do
// not have.
func (s *Session) nextOrphans() (batch [][]byte, op Op, more bool) {
	o := &s.orphans
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running = len(o.data) > 0
	return slices.Clone(o.data), Op{s.id, s.generation.Load()}, o.running
}

func (s *Session) orphansRemoved(n int) {
	o := &s.orphans
	o.mu.Lock()
	defer o.mu.Unlock()
	o.data = slices.Delete(o.data, 0, n)
}
