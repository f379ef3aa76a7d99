package dlocktest

import "reflect"

type need uint

const (
	needDrop need = 1 << iota
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

	needRead
	needWalk
	needRemove
	needAhead
	needArmed
	needReleased
	needCheck
	needValue
)

const (
	needLosses  = needLoseRequest | needLoseReply
	needInspect = needRead | needWalk | needRemove | needValue
)

type requirement struct {
	need    need
	name    string
	ability bool // true for an ability of sessions, false for a hook of Config
}

// needs lists all requirements, abilities first, so that a case that lacks both
// an ability and a hook is reported as not applicable rather than as not
// checked.
var needs = []requirement{
	{needRead, "Read", true},
	{needWalk, "Walk", true},
	{needRemove, "Remove", true},
	{needValue, "SetValue", true},
	{needAhead, string(AbilityAhead), true},
	{needArmed, string(AbilityArmed), true},
	{needReleased, string(AbilityReleased), true},
	{needCheck, string(AbilityCheck), true},
	{needDrop, "Drop", false},
	{needCutOff, "CutOff", false},
	{needReset, "Reset", false},
	{needSilenceNotices, "SilenceNotices", false},
	{needLoseRequest, "LoseRequest", false},
	{needLoseReply, "LoseReply", false},
	{needHoldRequest, "HoldRequest", false},
	{needDelayReplies, "DelayReplies", false},
	{needPause, "Pause", false},
	{needRemoveQueue, "RemoveQueue", false},
	{needRemoveNode, "RemoveNode", false},
	{needPutNode, "PutNode", false},
	{needRollOver, "NewNearRollOver", false},
	{needLossy, "NewLossy", false},
}

func needOf(a Ability) need {
	if a == AbilityInspect {
		return needInspect
	}
	return needNamed(string(a))
}

func needNamed(ability string) need {
	for _, n := range needs {
		if n.ability && n.name == ability {
			return n.need
		}
	}
	return 0
}

func (c Config) hooks() (have need) {
	fields := reflect.ValueOf(c)
	for _, n := range needs {
		if !n.ability && !fields.FieldByName(n.name).IsNil() {
			have |= n.need
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
