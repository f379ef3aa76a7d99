package recipes_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dlock-go/dlock/recipes"
)

func slowLines(log *safeBuffer) (lines []string) {
	for line := range strings.Lines(log.String()) {
		if _, said, ok := strings.Cut(line, `msg="dlock: still waiting" `); ok {
			lines = append(lines, strings.TrimSpace(said))
		}
	}
	return lines
}

func TestALongWaitIsLoggedOnce(t *testing.T) {
	for _, way := range []recipes.Wait{recipes.WatchPredecessor(), recipes.WatchQueue(), recipes.Poll(time.Second)} {
		t.Run(way.String(), func(t *testing.T) {
			inWorld(t, func(w *world) {
				var log safeBuffer
				holder, between := w.client("h"), w.client("b")
				held := w.won(holder.lock(bg))
				before := between.lock(bg)
				waiting := w.client("a", logTo(&log), recipes.WithWait(way)).rlock(bg)
				time.Sleep(5*time.Second - time.Millisecond)
				synctest.Wait()
				assert.Empty(w, slowLines(&log))
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				assert.Equal(w, []string{
					"lock=q recipe=lock node=a-R-0000000002 behind=b-W-0000000001 holder=h-W-0000000000 position=3 waited=5s",
				}, slowLines(&log))
				w.unlock(held)
				w.unlock(w.won(before))
				if way == recipes.Poll(time.Second) {
					time.Sleep(2 * time.Second)
				}
				w.unlock(w.won(waiting))
				assert.Len(w, slowLines(&log), 1)
			})
		})
	}
}
