package histories

import (
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/history"
)

const (
	r = dlock.Shared
	w = dlock.Exclusive
)

// The parameters call and ret are the logical times of an operation's start and
// end.

func at(call, ret int64, o history.Operation) porcupine.Operation {
	o.Actor, o.Queue, o.Call, o.Return = o.Hold, "q", call, ret
	return forPorcupine(o)
}

func won(call, ret int64, hold int, mode dlock.Mode, token int64) porcupine.Operation {
	return at(call, ret, history.Operation{Kind: history.Grant, Hold: hold, Mode: mode, Token: token})
}

func acquired(call, ret int64, hold, units int, token int64) porcupine.Operation {
	return at(call, ret, history.Operation{Kind: history.Grant, Hold: hold, Mode: r, Units: units, Token: token})
}

func gone(call, ret int64, hold int) porcupine.Operation {
	return at(call, ret, history.Operation{Kind: history.Unlocking, Hold: hold})
}

func lost(call, ret int64, hold int) porcupine.Operation {
	return at(call, ret, history.Operation{Kind: history.Loss, Hold: hold})
}

func again(call, ret int64, hold, handle int, mode dlock.Mode) porcupine.Operation {
	return at(call, ret, history.Operation{Kind: history.Reentry, Hold: hold, Handle: handle, Mode: mode})
}

func gone2(call, ret int64, hold, handle int) porcupine.Operation {
	return at(call, ret, history.Operation{Kind: history.Unlocking, Hold: hold, Handle: handle})
}

func still2(call, ret int64, hold, handle int, mode dlock.Mode) porcupine.Operation {
	return at(call, ret, history.Operation{Kind: history.Answer, Hold: hold, Handle: handle, Mode: mode})
}

func noUpgrade(call, ret int64, hold int) porcupine.Operation {
	return at(call, ret, history.Operation{Kind: history.Refusal, Hold: hold})
}

func lowered(call, ret int64, hold int) porcupine.Operation {
	return at(call, ret, history.Operation{Kind: history.Downgrade, Hold: hold})
}

func perhapsLowered(call, ret int64, hold int) porcupine.Operation {
	return at(call, ret, history.Operation{Kind: history.Downgrade, Hold: hold, Maybe: true})
}

func still(call, ret int64, hold int, mode dlock.Mode) porcupine.Operation {
	return at(call, ret, history.Operation{Kind: history.Answer, Hold: hold, Mode: mode})
}

func cleared(call, ret, token int64) porcupine.Operation {
	return at(call, ret, history.Operation{Kind: history.Clearing, Token: token})
}

func elsewhere(o porcupine.Operation) porcupine.Operation {
	in := o.Input.(operation)
	in.Queue = "elsewhere"
	o.Input = in
	return o
}

type operations = []porcupine.Operation

func TestTheModelAllowsWhatALockMayDo(t *testing.T) {
	for name, ops := range map[string]operations{
		"nothing":                           {},
		"one writer":                        {won(1, 2, 1, w, 1), still(3, 4, 1, w), gone(5, 6, 1)},
		"a writer who stays":                {won(1, 2, 1, w, 1)},
		"a writer after the other":          {won(1, 2, 1, w, 1), gone(3, 4, 1), won(5, 6, 2, w, 2)},
		"a writer who waits":                {won(1, 2, 1, w, 1), won(2, 8, 2, w, 2), still(4, 4, 1, w), gone(5, 6, 1), gone(9, 10, 2)},
		"in before Unlock has returned":     {won(1, 2, 1, w, 1), gone(3, 9, 1), won(4, 5, 2, w, 2), still(6, 7, 2, w)},
		"readers together":                  {won(1, 2, 1, r, 1), won(3, 4, 2, r, 2), gone(5, 6, 2), gone(7, 8, 1)},
		"readers in any order of tokens":    {won(1, 2, 2, r, 2), won(3, 4, 1, r, 1)},
		"readers let in by a downgrade":     {won(1, 2, 1, w, 1), lowered(3, 8, 1), won(4, 5, 2, r, 2), still(6, 6, 1, r)},
		"a downgrade that came late":        {won(1, 2, 1, w, 1), perhapsLowered(3, 9, 1), still(5, 5, 1, w), won(4, 7, 2, r, 2), gone(8, 9, 1)},
		"a downgrade that came to nothing":  {won(1, 2, 1, w, 1), gone(3, 4, 1), perhapsLowered(5, 6, 1), won(5, 6, 2, w, 2)},
		"a loss, others in before it shows": {won(1, 2, 1, w, 1), gone(3, 9, 1), won(4, 5, 2, w, 2), gone(6, 7, 2), won(7, 8, 3, r, 3)},
		"won before the queue was removed":  {won(1, 6, 1, w, 1), cleared(3, 3, 1), gone(4, 5, 1), won(6, 7, 2, w, 2)},
		"another queue has its own tokens":  {won(1, 2, 1, w, 9), elsewhere(won(3, 4, 2, w, 2))},
		"taken away while it was being won": {won(1, 9, 1, w, 1), gone(2, 10, 1), won(3, 4, 2, w, 2)},
		"a reader's token below a reader's": {won(1, 2, 1, w, 1), gone(3, 4, 1), won(5, 6, 3, r, 3), won(7, 8, 2, r, 2)},
		"entered again, left one by one":    {won(1, 2, 1, w, 1), again(3, 4, 1, 1, w), gone(5, 6, 1), still2(7, 8, 1, 1, w), gone2(9, 10, 1, 1), won(11, 12, 2, w, 2)},
		"a reader within a writer":          {won(1, 2, 1, w, 1), again(3, 4, 1, 1, r), still(5, 6, 1, w), still2(5, 6, 1, 1, r)},
		"the writer leaves, readers enter":  {won(1, 2, 1, w, 1), again(3, 4, 1, 1, r), gone(5, 6, 1), won(7, 8, 2, r, 2), still2(9, 10, 1, 1, r), noUpgrade(9, 10, 1)},
		"entered again while leaving":       {won(1, 2, 1, w, 1), gone(3, 9, 1), again(4, 8, 1, 1, w), gone2(10, 11, 1, 1), won(12, 13, 2, w, 2)},
		"all units held together":           {acquired(1, 2, 1, 1, 1), acquired(3, 4, 2, 3, 2), still(5, 6, 1, r), gone(7, 8, 1), gone(9, 10, 2)},
		"one who waits for many units":      {acquired(1, 2, 1, 2, 1), acquired(3, 7, 2, 4, 2), gone(5, 6, 1), gone(8, 9, 2)},
		"waiters for units enter at once":   {acquired(1, 2, 1, 4, 1), acquired(3, 10, 2, 1, 2), acquired(4, 8, 3, 1, 3), gone(5, 6, 1)},
		"units after they were lost":        {acquired(1, 2, 1, 4, 1), lost(3, 4, 1), acquired(5, 6, 2, 4, 2)},
		"units and a lock in turn":          {acquired(1, 2, 1, 1, 1), gone(3, 4, 1), won(5, 6, 2, r, 2), gone(7, 8, 2), acquired(9, 10, 3, 4, 3)},
		"all of it lost at once":            {won(1, 2, 1, w, 1), again(3, 4, 1, 1, w), lost(5, 6, 1), won(7, 8, 2, w, 2)},
	} {
		t.Run(name, func(t *testing.T) { require.True(t, porcupine.CheckOperations(model, ops)) })
	}
}

func TestTheModelForbidsWhatALockMustNotDo(t *testing.T) {
	for name, ops := range map[string]operations{
		"two writers":                                    {won(1, 2, 1, w, 1), won(3, 4, 2, w, 2), gone(5, 6, 1), gone(7, 8, 2)},
		"two writers who stay":                           {won(1, 5, 1, w, 1), won(2, 4, 2, w, 2)},
		"a reader beside a writer":                       {won(1, 2, 1, w, 1), won(3, 4, 2, r, 2), gone(5, 6, 1)},
		"a writer beside a reader":                       {won(1, 2, 1, r, 1), won(3, 4, 2, w, 2), gone(5, 6, 1)},
		"a writer after a downgrade":                     {won(1, 2, 1, w, 1), lowered(3, 4, 1), won(5, 6, 2, w, 2), gone(7, 8, 1)},
		"a reader before a downgrade":                    {won(1, 2, 1, w, 1), won(3, 4, 2, r, 2), lowered(5, 6, 1)},
		"exclusive after its downgrade":                  {won(1, 2, 1, w, 1), lowered(3, 4, 1), still(5, 6, 1, w)},
		"a downgrade of what was not held":               {lowered(1, 2, 1)},
		"exclusive although a reader was in":             {won(1, 2, 1, w, 1), perhapsLowered(3, 9, 1), won(4, 5, 2, r, 2), still(6, 7, 1, w), gone(10, 11, 2)},
		"still held although a writer was in":            {won(1, 2, 1, w, 1), gone(3, 9, 1), won(4, 5, 2, w, 2), still(6, 7, 1, w)},
		"still held after the release":                   {won(1, 2, 1, w, 1), gone(3, 4, 1), still(5, 6, 1, w)},
		"in before the cause of a loss":                  {won(1, 2, 1, w, 1), won(3, 4, 2, w, 2), gone(5, 9, 1)},
		"released twice":                                 {won(1, 2, 1, w, 1), gone(3, 4, 1), gone(5, 6, 1)},
		"a writer's token falls":                         {won(1, 2, 1, w, 2), gone(3, 4, 1), won(5, 6, 2, w, 1)},
		"a writer's token comes again":                   {won(1, 2, 1, w, 1), gone(3, 4, 1), won(5, 6, 2, w, 1)},
		"a writer passes a reader of before":             {won(1, 2, 1, r, 2), gone(3, 4, 1), won(5, 6, 2, w, 1)},
		"a reader's token below a writer's":              {won(1, 2, 1, w, 2), gone(3, 4, 1), won(5, 6, 2, r, 1)},
		"won after its node was removed":                 {won(1, 2, 1, w, 1), won(1, 8, 2, w, 2), cleared(3, 3, 2), gone(4, 5, 1)},
		"a writer beside one of two Locks":               {won(1, 2, 1, w, 1), again(3, 4, 1, 1, w), gone(5, 6, 1), won(7, 8, 2, w, 2), still2(9, 10, 1, 1, w)},
		"half of a lock lost":                            {won(1, 2, 1, w, 1), again(3, 4, 1, 1, w), lost(5, 6, 1), still2(7, 8, 1, 1, w)},
		"a re-entry after the last Unlock":               {won(1, 2, 1, w, 1), gone(3, 4, 1), again(5, 6, 1, 1, w)},
		"a re-entry after a loss":                        {won(1, 2, 1, w, 1), lost(3, 4, 1), again(5, 6, 1, 1, w)},
		"a writer within a reader":                       {won(1, 2, 1, r, 1), again(3, 4, 1, 1, w)},
		"a writer after its own downgrade":               {won(1, 2, 1, w, 1), lowered(3, 4, 1), again(5, 6, 1, 1, w)},
		"no upgrade for a writer":                        {won(1, 2, 1, w, 1), noUpgrade(3, 4, 1)},
		"an upgrade refused to no holder":                {noUpgrade(1, 2, 1)},
		"a grant with an old token on a node of its own": {won(1, 2, 1, w, 1), gone(3, 4, 1), won(5, 6, 2, r, 1)},
		"too many units":                                 {acquired(1, 2, 1, 2, 1), acquired(3, 4, 2, 3, 2), gone(5, 6, 1)},
		"too many units of three":                        {acquired(1, 2, 1, 2, 1), acquired(3, 4, 2, 2, 2), acquired(5, 6, 3, 1, 3), gone(7, 8, 2)},
		"more units than there are":                      {acquired(1, 2, 1, history.Units+1, 1)},
		"units that were given back are still held":      {acquired(1, 2, 1, 1, 1), gone(3, 4, 1), still(5, 6, 1, r)},
		"few units pass a waiter for many":               {acquired(1, 2, 1, 3, 1), acquired(3, 8, 2, 2, 2), acquired(4, 5, 3, 1, 3), gone(6, 7, 1)},
		"the token of units falls":                       {acquired(1, 2, 1, 1, 2), acquired(3, 4, 2, 1, 1)},
		"units after their node was removed":             {acquired(1, 2, 1, 4, 1), acquired(1, 8, 2, 1, 2), cleared(3, 3, 2), gone(4, 5, 1)},
		"units' token below a reader's":                  {won(1, 2, 1, r, 2), gone(3, 4, 1), acquired(5, 6, 2, 1, 1)},
		"units beside a reader":                          {won(1, 2, 1, r, 1), acquired(3, 4, 2, 1, 2), gone(5, 6, 1)},
		"a reader beside units":                          {acquired(1, 2, 1, 1, 1), won(3, 4, 2, r, 2), gone(5, 6, 1)},
		"a writer beside units":                          {acquired(1, 2, 1, 1, 1), won(3, 4, 2, w, 2), gone(5, 6, 1)},
		"a reader's token below that of units":           {acquired(1, 2, 1, 1, 2), gone(3, 4, 1), won(5, 6, 2, r, 1)},
		"the other queue does not make up":               {won(1, 2, 1, w, 1), elsewhere(won(1, 2, 2, w, 2)), won(3, 4, 3, w, 3)},
	} {
		t.Run(name, func(t *testing.T) { require.False(t, porcupine.CheckOperations(model, ops)) })
	}
}
