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

// orphan makes the session remove, in the background, the node that a Create
// without an answer may have made with the given data. It raises the generation of
// the session. The removal tells the database the new generation, and from then on
// the database refuses that Create, whose generation is lower.
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

// nextOrphans returns the data of all present orphans, and the generation for
// their removal. It is higher than the generations of the Creates that may have
// made these orphans.
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
