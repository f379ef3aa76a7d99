package testenv

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// failing returns a function that returns one of errs per call, in order, and
// then nil. calls counts the calls.
func failing(errs ...error) (start func() error, calls *int) {
	calls = new(int)
	return func() error {
		*calls++
		if *calls <= len(errs) {
			return errs[*calls-1]
		}
		return nil
	}, calls
}

func TestOnlyATakenPortIsTriedAgain(t *testing.T) {
	taken := fmt.Errorf("the second server: %w", ErrPortTaken)
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		for name, retry := range map[string]func(start func() error) error{
			"same ports": RetrySamePorts,
			"new ports": func(start func() error) error {
				s := Servers[string]{Launch: func(string) error { return start() }, Close: func(string) error { return nil }}
				_, err := s.start(func() (string, error) { return "server", nil })
				return err
			},
		} {
			start, calls := failing()
			require.NoError(t, retry(start), name)
			require.Equal(t, 1, *calls, name)
			start, calls = failing(taken, taken)
			require.NoError(t, retry(start), name)
			require.Equal(t, 3, *calls, name)
			start, calls = failing(taken, broken)
			require.ErrorIs(t, retry(start), broken, name)
			require.Equal(t, 2, *calls, name)
		}
		start, calls := failing(taken, taken, taken, taken, taken)
		require.ErrorIs(t, RetrySamePorts(start), ErrPortTaken)
		require.Equal(t, 5, *calls)
	})
}
