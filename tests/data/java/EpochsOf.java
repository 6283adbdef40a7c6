package brokerstorm.pulsar;

import brokerstorm.kit.MessagePosition;
import java.util.Scanner;

/** Reads what happened, one event a line; for every message prints the epoch of its stream. */
final class EpochsOf {
    public static void main(String[] args) {
        Epochs epochs = new Epochs(!args[0].equals("shared"));
        int[] epoch = new int[3];
        Scanner in = new Scanner(System.in);
        while (in.hasNext()) {
            String what = in.next();
            int stream = in.nextInt();
            if (what.equals("lost")) {
                epochs.lost(stream);
            } else if (what.equals("reconnected")) {
                epochs.reconnected(stream, in.nextInt());
            } else {
                MessagePosition place = new MessagePosition(stream, in.nextLong());
                place.batch = -1;
                epoch[stream] += epochs.begins(place) ? 1 : 0;
                System.out.println(epoch[stream]);
            }
        }
    }
}
