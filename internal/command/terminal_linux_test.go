package command

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/memdriver"
)

func TestReleaseAsksOnATerminal(t *testing.T) {
	t.Setenv("DLOCK_DRIVER", "shared")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	store := memdriver.New()
	shared = store
	for _, answer := range []string{"\n", "n\n", "nay\n", "\x04", "y\n", "YES\n"} {
		person, program := testenv.OpenTerminal(t)
		before := os.Stdin
		os.Stdin = program
		lock := held(t, client(t, store, "web1"), "q")
		status := make(chan int, 1)
		go func() { status <- Run(t.Context(), []string{"release", "q", lock.Node()}, program, program) }()

		screen := bufio.NewReader(person)
		var shown strings.Builder
		for !strings.HasSuffix(shown.String(), "Remove? [y/N] ") {
			b, err := screen.ReadByte()
			require.NoError(t, err)
			shown.WriteByte(b)
		}
		assert.Contains(t, shown.String(), lock.Node())
		assert.Contains(t, shown.String(), "will work at the same time")
		_, err := person.WriteString(answer)
		require.NoError(t, err)
		if got := <-status; strings.ContainsAny(answer, "yY") && answer != "nay\n" {
			assert.Zero(t, got, "%q", answer)
			<-lock.Lost()
			require.ErrorIs(t, lock.Unlock(), dlock.ErrLost)
		} else {
			assert.Equal(t, failedStatus, got, "%q", answer)
			require.NoError(t, lock.Unlock())
		}
		os.Stdin = before
	}
}
