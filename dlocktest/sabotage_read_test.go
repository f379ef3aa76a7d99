package dlocktest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

var readSabotages = []sabotage{
	{"reads no token", "a Read that was written for people and not for tools",
		of(func(s base) readsNothing { return readsNothing{s} })},
	{"reads what is gone", "an empty answer that is no error",
		of(func(s base) readsGone { return readsGone{s} })},
}

var walkSabotages = []sabotage{
	{"walks by letters", "a prefix of keys taken for a path",
		of(func(s base) walksByLetters { return walksByLetters{s} })},
}

type readsGone struct{ *releasing }

func (s readsGone) Read(ctx context.Context, queue, name string) (driver.Info, error) {
	info, err := s.releasing.Read(ctx, queue, name)
	if errors.Is(err, driver.ErrGone) {
		return driver.Info{}, nil
	}
	return info, err
}

type readsNothing struct{ *releasing }

func (s readsNothing) Read(ctx context.Context, queue, name string) (driver.Info, error) {
	info, err := s.releasing.Read(ctx, queue, name)
	info.Token = 0
	return info, err
}

type walksByLetters struct{ *releasing }

func (s walksByLetters) Walk(ctx context.Context, prefix string) ([]string, error) {
	all, err := s.releasing.Walk(ctx, "")
	return slices.DeleteFunc(all, func(q string) bool { return !strings.HasPrefix(q, prefix) }), err
}
