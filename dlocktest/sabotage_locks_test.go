package dlocktest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// lockSabotages are broken drivers that the cases for dlock's locks must catch,
// although each breaks a rule that has its own cases.
var lockSabotages = []sabotage{
	{"always says that no node is ahead; seen in locks", "see rule 5", tells(func([]driver.Node, driver.Node) []driver.Node { return nil })},
	{"sends Released without knowing what operators removed; seen in locks", "see rule 13",
		overtaking(func(s *overtaken, p driver.Place) bool {
			_, own := s.deleted.Load(p)
			return !own && s.Err() == nil
		})},
	{"removes only one node when a connection breaks under many creates", "a field for the create in doubt", of(func(s base) *doubtsOne { return &doubtsOne{base: s} })},
	{"learns of its end late; seen in locks", "see rule 8", of(newLateEnd)},
}

type doubtsOne struct {
	base
	resets, cleaned atomic.Int32
}

func (s *doubtsOne) reset() { s.resets.Add(1) }

func (s *doubtsOne) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	before := s.resets.Load()
	j, err := s.base.Create(ctx, queue, n)
	time.Sleep(time.Millisecond)
	after := s.resets.Load()
	if err != nil || after == before {
		return j, err
	}
	if s.cleaned.Swap(after) != after {
		_ = s.base.Delete(ctx, queue, j.Place, driver.Changed)
	}
	return driver.Joined{}, errReset
}
