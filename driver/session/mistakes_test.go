package session_test

import (
	"testing"

	"github.com/dlock-go/dlock/internal/mistakes"
)

func TestEachMistakeIsSeen(t *testing.T) {
	mistakes.Run(t, func(testing.TB) {}, mistakes.Engine())
}
