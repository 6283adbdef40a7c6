package brokerstorm.kit;

import java.util.ArrayList;
import java.util.List;

/**
 * Whose turn message i is: a round of lanes, over and over. A lane that has more turns in it has more messages; its
 * sequence is dense from 0 all the same.
 */
final class Turns {
    /** Of all messages, the part that these turns have. */
    final double share;

    private final Lane[] lanes;
    /** Messages that the lane of a turn has in a round. */
    private final int[] perRound;
    /** How many of them come before the turn. */
    private final int[] before;

    /** Of {@code order} (indexes of {@code every} lane; none = each once) what belongs to one of the threads. */
    Turns(List<Lane> every, int[] order, int thread, int threads) {
        int all = order.length > 0 ? order.length : every.size();
        List<Integer> own = new ArrayList<>();
        for (int i = 0; i < all; i++) {
            int lane = order.length > 0 ? order[i] : i;
            if (lane % threads == thread) {
                own.add(lane);
            }
        }
        share = (double) own.size() / all;
        lanes = new Lane[own.size()];
        perRound = new int[own.size()];
        before = new int[own.size()];
        int[] counts = new int[every.size()];
        for (int turn = 0; turn < lanes.length; turn++) {
            lanes[turn] = every.get(own.get(turn));
            before[turn] = counts[own.get(turn)]++;
        }
        for (int turn = 0; turn < lanes.length; turn++) {
            perRound[turn] = counts[own.get(turn)];
        }
    }

    Lane lane(long i) {
        return lanes[(int) (i % lanes.length)];
    }

    /** The sequence number of message i in its lane. */
    long seq(long i) {
        int turn = (int) (i % lanes.length);
        return i / lanes.length * perRound[turn] + before[turn];
    }
}
