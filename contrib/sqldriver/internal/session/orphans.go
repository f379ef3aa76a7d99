package session

import (
	"bytes"
	"context"
	"errors"
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

// removeOrphans removes one orphan after the other. If a removal fails, its turn comes
// again after those of the others, because a transaction of an operator may have locked
// the node.
func (s *Session) removeOrphans() {
	life, cancel := s.lease.Context()
	defer cancel()
	for {
		data, op, more := s.nextOrphan()
		if !more {
			return
		}
		ctx, cancel := context.WithTimeout(life, max(s.timeout/4, time.Second))
		err := s.store.Cancel(ctx, op, data)
		cancel()
		switch {
		case err == nil:
		case errors.Is(err, ErrUnknownSession):
			s.lease.End(err)
			return
		default:
			s.orphans.add(data)
			if !Sleep(life, cancelPause) {
				return
			}
		}
	}
}

// nextOrphan takes an orphan out of the list. It returns the orphan's data, and the
// generation for its removal. The generation is higher than that of the Create that may
// have made the orphan.
func (s *Session) nextOrphan() (data []byte, op Op, more bool) {
	o := &s.orphans
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running = len(o.data) > 0
	if !o.running {
		return nil, Op{}, false
	}
	data, o.data = o.data[0], o.data[1:]
	return data, Op{s.id, s.generation.Load()}, true
}

func (o *orphans) add(data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.data = append(o.data, data)
}
