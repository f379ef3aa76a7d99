package dlocktest

import (
	"context"
	"runtime"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

var aloneSabotages = []sabotage{
	{"counts the others before it creates", "two requests that are no transaction",
		of(func(s base) racyAlone { return racyAlone{s} })},
	{"is always alone", "a field that is never set right, because one client at a time was tried",
		of(func(s base) alwaysAlone { return alwaysAlone{s} })},
	{"counts the writers only", "SQL: a WHERE too many",
		of(func(s base) *aloneAmong {
			return &aloneAmong{s, func(n driver.Node) bool { return strings.Contains(n.Name, "-W-") }}
		})},
	{"counts what looks like its own only", "a parser of names where the contract asks for any sequenced node",
		of(func(s base) *aloneAmong {
			return &aloneAmong{s, func(n driver.Node) bool { return strings.Contains(n.Name, "-W-") || strings.Contains(n.Name, "-R-") }}
		})},
}

// aloneAmong overlooks contenders.
type aloneAmong struct {
	*releasing
	counts func(driver.Node) bool
}

func (s *aloneAmong) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.releasing.Create(ctx, queue, prefix, data)
	if err != nil || p.Alone {
		return p, err
	}
	nodes, err := s.List(ctx, queue)
	before := nodes[:max(0, slices.Index(nodes, p.Node))]
	p.Alone = len(before) > 0 && !slices.ContainsFunc(before, s.counts)
	return p, err
}

type racyAlone struct{ *releasing }

func (s racyAlone) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	before, err := s.List(ctx, queue)
	if err != nil {
		return driver.Place{}, err
	}
	runtime.Gosched()
	p, err := s.releasing.Create(ctx, queue, prefix, data)
	p.Alone = len(before) == 0
	return p, err
}

type alwaysAlone struct{ *releasing }

func (s alwaysAlone) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.releasing.Create(ctx, queue, prefix, data)
	p.Alone = true
	return p, err
}
