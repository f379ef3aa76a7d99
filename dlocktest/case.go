package dlocktest

import (
	"reflect"
	"slices"
)

type need uint

const (
	needRead need = 1 << iota
	needWalk
	needRemove
	needValue
	needAhead
	needArmed
	needReleased
	needCheck

	needDrop
	needCutOff
	needReset
	needSilenceNotices
	needLoseRequest
	needLoseReply
	needHoldRequest
	needDelayReplies
	needPause
	needRemoveQueue
	needRemoveNode
	needPutNode
	needRollOver
	needLossy
)

// If a case lacks several of these, the first is reported. The driver's
// abilities ("not applicable") come before hooks of Config ("not checked").
var needNames = [...]string{
	"Read", "Walk", "Remove", "SetValue", string(AbilityAhead), string(AbilityArmed), string(AbilityReleased), string(AbilityCheck),
	"Drop", "CutOff", "Reset", "SilenceNotices", "LoseRequest", "LoseReply", "HoldRequest", "DelayReplies", "Pause",
	"RemoveQueue", "RemoveNode", "PutNode", "NewNearRollOver", "NewLossy",
}

const (
	needAbility = needDrop - 1 // all abilities
	needLosses  = needLoseRequest | needLoseReply
	needInspect = needRead | needWalk | needRemove | needValue
)

func (n need) names() (names []string) {
	for i, name := range needNames {
		if n&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

func needOf(a Ability) need {
	if a == AbilityInspect {
		return needInspect
	}
	return needNamed(string(a))
}

func needNamed(ability string) need {
	i := slices.Index(needNames[:], ability)
	if i < 0 {
		return 0
	}
	return needAbility & (1 << i)
}

func (c Config) hooks() (have need) {
	fields := reflect.ValueOf(c)
	for i, name := range needNames {
		if hook := need(1 << i); hook&needAbility == 0 && !fields.FieldByName(name).IsNil() {
			have |= hook
		}
	}
	return have
}

// Consequences for users if a rule is broken; failing cases print them.
const (
	whyOrphan   = "a node that no contender knows of blocks the lock for all others until its session ends"
	whyDelete   = "the lock would stay locked although its holder has unlocked it"
	whyGone     = "a holder that unlocks has to learn that it had lost the lock before"
	whyStale    = "a late Unlock would remove the node of the contender that holds the lock now"
	whyEnd      = "a holder that does not know of the end of its session goes on writing beside the next holder"
	whyClose    = "the locks of a process that has closed its client would stay locked for a session timeout"
	whyWatch    = "a contender that waits for this node would wait for ever, and so would every contender behind it"
	whyOvertook = "a contender whose own node was removed before would hold the lock without a node, beside another holder"
	whyReplace  = "a lock that is downgraded would be lost, or a writer behind it would get the lock as well"
)
