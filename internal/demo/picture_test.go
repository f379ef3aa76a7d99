package demo

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

func TestTheTimeLineShowsEachHold(t *testing.T) {
	var out bytes.Buffer
	drawTimeline(&out, []*attempt{
		hold(dlock.Shared, 1, 0, 0, 95),
		hold(dlock.Exclusive, 2, 20, 95, 199),
		hold(dlock.Shared, 3, 10, 200, 590),
		{Worker: "w4", Mode: dlock.Exclusive, Asked: ms(150), Ended: ms(250), Outcome: failed},
	})
	assert.Equal(t, `
The time line; a column is 10ms

  w1 R  rrrrrrrrr
  w2 W    .......WWWWWWWWWWW
  w3 R   ...................rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr
  w4 W                 ..........x

  . waits   r holds it shared   W holds it exclusive   x lost, failed or killed

`, out.String())
}

func TestHoldsThatFollowEachOtherShareNoColumn(t *testing.T) {
	used := make(map[int]bool)
	for i := range 9 { // most holds end within a column
		for column, mark := range row(hold(dlock.Exclusive, i, 0, i*37, (i+1)*37), ms(10)) {
			if mark == 'W' {
				assert.False(t, used[column], "column %d", column)
				used[column] = true
			}
		}
	}
}

var update = flag.Bool("update", false, "write the pictures that the pages show")

func TestThePicturesOfTheDocumentation(t *testing.T) {
	for shown, fault := range map[string]string{
		"../../docs/use/demo.svg":       "",
		"../../docs/use/demo-pause.svg": faultPause,
	} {
		name := filepath.Join(t.TempDir(), "demo.svg")
		synctest.Test(t, func(t *testing.T) {
			_, out, err := start(t, t.Context(), "-fault", fault, "-svg", name)
			require.NoError(t, err)
			require.True(t, strings.HasSuffix(out, "\nPicture: "+name+"\n"), out)
		})
		drawn, err := os.ReadFile(name)
		require.NoError(t, err)
		if *update {
			require.NoError(t, os.WriteFile(shown, drawn, 0o644))
		}
		want, err := os.ReadFile(shown)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(drawn), "go test -run TestThePictures ./internal/demo -update writes it anew")
	}
}

func TestThePictureHasABarForEachHoldAndAMarkForEachEnd(t *testing.T) {
	r := right()
	r.Fault, r.counter.late = faultKill, &lateWrite{ms(300), 1, true}
	r.attempts[0].Outcome = killed
	r.attempts[2].Outcome = lost
	r.attempts = append(r.attempts, &attempt{Worker: "w7", Mode: dlock.Exclusive, Asked: ms(9), Ended: ms(300), Outcome: failed})
	drawn := drawPicture(r)
	for part, want := range map[string]int{
		`<rect class="shared"`: 4, `<rect class="exclusive"`: 2, `<rect class="wait"`: 7, `<path class="mark"`: 4,
	} {
		assert.Equal(t, want, strings.Count(drawn, part), part)
	}
	for _, text := range []string{"A process is killed while it holds the lock", "w7", "killed", "lost", "failed", "late write refused"} {
		assert.Contains(t, drawn, ">"+text+"<")
	}
}
